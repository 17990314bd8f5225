"""Tensors of more elements than 32 bits count: indices of 64 bits where sizes are known, else an error."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from simulate import Simulated, captured

from smelt.base.config import Config as Knobs
from smelt.codegen.triton import region as region_module
from smelt.codegen.triton.binaries import Binaries, Binary, Job
from smelt.codegen.triton.kernel import TARGETS, TritonKernel

LARGE = {
    "a large result": "(float16[65536,40000] x) => (float16[65536,40000] y) { y = Exp(x) }",
    "a large operand": "(float16[65536,40000] x) => (float16[65536,1] y) { y = ReduceSum(x) }".replace(
        "{ y = ReduceSum(x) }", "{ a = Constant<value = int64[1] {1}>() y = ReduceSum(x, a) }"
    ),
    "the first axis": "(float16[65536,40000] x) => (float16[1,40000] y) "
    "{ a = Constant<value = int64[1] {0}>() y = ReduceSum(x, a) }",
    "softmax": "(float16[700000,4000] x) => (float16[700000,4000] y) { y = Softmax(x) }",
    "many axes": "(float16[3000,1000,1000] x) => (float16[1000,1000,3000] y) { y = Transpose<perm=[2,1,0]>(x) }",
    "a scan": "(float16[65536,40000] x) => (float16[65536,40000] y) "
    "{ a = Constant<value = int64 {1}>() y = CumSum(x, a) }",
    "attention": "(float[64,32,9000,128] q, float[64,32,9000,128] k, float[64,32,9000,128] v) => "
    "(float[64,32,9000,128] y) { y = Attention(q, k, v) }",
}
SMALL = {
    "chain": "(float[7,60] x, float[60] b) => (float[7,60] y) { a = Add(x, b) s = Sigmoid(a) y = Mul(a, s) }",
    "softmax": "(float[5,70] x) => (float[5,70] y) { y = Softmax(x) }",
    "first axis": "(float[9,40] x) => (float[1,40] y) { a = Constant<value = int64[1] {0}>() y = ReduceMean(x, a) }",
    "argmax": "(float[6,50] x) => (int64[6,1] y) { y = ArgMax<axis=1>(x) }",
    "scan": "(float[6,300] x) => (float[6,300] y) { a = Constant<value = int64 {1}>() y = CumSum<reverse=1>(x, a) }",
    "transpose": "(float[4,5,6] x) => (float[6,4,5] y) { y = Transpose<perm=[2,0,1]>(x) }",
    "attention": "(float[2,3,37,16] q, float[2,3,70,16] k, float[2,3,70,16] v) => (float[2,3,37,16] y) "
    "{ y = Attention(q, k, v) }",
    "some sizes free": "(float[n,60] x, float[60] b) => (float[n,60] y) { y = Mul(x, b) }",
}


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g {text}')


def simulated(text: str) -> tuple[Any, list[Simulated]]:
    made = captured(parsed(text))
    assert not made.plan.fallbacks, [fallback.reason for fallback in made.plan.fallbacks]
    return made, [Simulated(region, made.facts, made.model.graph.inputs) for region in made.plan.regions]


@pytest.mark.parametrize("name", LARGE)
def test_no_index_of_a_large_tensor_is_multiplied_in_32_bits(name: str):
    kernels = [k for one in simulated(LARGE[name])[1] for k in one.kernels]
    assert kernels and all(kernel.wide for kernel in kernels)
    binaries = Binaries(Knobs.from_env())
    jobs = [Job(k, config, TARGETS[0]) for k in kernels for config in k.configs]
    for job, made in binaries.make(jobs).items():
        assert isinstance(made, Binary), made
        narrow = re.findall(r"arith\.muli .*(?:i32|xi32>)$", binaries.ttir(job), re.MULTILINE)
        assert not narrow, (job.config.function, narrow)


@pytest.mark.parametrize("name", SMALL)
def test_indices_of_64_bits_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(region_module, "MOST_NARROW", 20)
    made, regions = simulated(SMALL[name])
    (one,) = regions
    assert any(kernel.wide for kernel in one.kernels)
    random = np.random.default_rng(0)
    inputs = made.model.graph.inputs
    shapes = [[d if isinstance(d, int) else 8 for d in value.shape] for value in inputs]
    feeds = {value.name: random.standard_normal(s).astype("f") for value, s in zip(inputs, shapes, strict=True)}
    session = onnxruntime.InferenceSession(parsed(SMALL[name]).SerializeToString())
    (wanted,) = session.run(None, feeds)
    for pick in (0, 1):
        (found,) = one.run({value: feeds[value.name] for value in inputs}, pick).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_kernel_of_32_bits_that_a_known_size_is_too_large_for_has_no_code(monkeypatch: pytest.MonkeyPatch):
    """Weights of few bits have kernels of their own, whose indices have 32 bits."""
    monkeypatch.setattr(TritonKernel, "wide", property(lambda _self: False, lambda _self, _value: None), raising=False)
    with pytest.raises(region_module.Unsupported, match="2\\^31 - 65536 elements or more"):
        simulated(LARGE["a large result"])
