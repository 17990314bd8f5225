"""Generated kernels: numerics by Triton's interpreter, masks, and binaries for every target."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from simulate import Simulated, captured
from suite_run import run_case

from smelt.base.config import Config as Knobs
from smelt.codegen.triton.binaries import Binaries, Binary, Job
from smelt.codegen.triton.kernel import TARGETS, TritonKernel

GRAPHS = {
    "chain": "(float[n,60] x, float[60] b) => (float[n,60] y) { a = Add(x, b) s = Sigmoid(a) y = Mul(a, s) }",
    "softmax": "(float[n,m] x) => (float[n,m] y) { y = Softmax(x) }",
    "norm": "(float[n,k,48] x, float[48] w, float[48] b) => (float[n,k,48] y) { y = LayerNormalization(x, w, b) }",
    "first axis": "(float[n,m] x) => (float[o,m] y) { a = Constant<value = int64[1] {0}>() y = ReduceMean(x, a) }",
    "argmax": "(float[n,m] x) => (int64[n,o] y) { y = ArgMax<axis=1>(x) }",
    "scan": "(float[n,m] x) => (float[n,m] y) { a = Constant<value = int64 {1}>() y = CumSum<reverse=1>(x, a) }",
    "transpose": "(float[n,m,k] x) => (float[k,n,m] y) { y = Transpose<perm=[2,0,1]>(x) }",
    "concat": "(float[n,3] x, float[n,5] z) => (float[n,8] y) { y = Concat<axis=1>(x, z) }",
    "gather": "(float[n,m] x, int64[k] i) => (float[k,m] y) { y = Gather<axis=0>(x, i) }",
    "divide": "(int64[n,m] x, int64[m] z) => (int64[n,m] y) { a = Div(x, z) y = Mod(a, z) }",
    "divide bytes": "(int8[n] x, int8[n] z) => (int8[n] y) { a = Mod<fmod=1>(x, z) b = Mod(a, z) y = Div(b, z) }",
    "divide unsigned": "(uint8[n] x, uint8[n] z) => (uint8[n] y) { a = Mod(x, z) y = Div(a, z) }",
    "half": "(float16[n,m] x) => (float16[n,m] y) { y = Softmax(x) }",
    "bfloat": "(bfloat16[n,m] x) => (bfloat16[n,m] y) { y = Exp(x) }",
    "quantize": "(float[n,m] x, float s, uint8 z) => (float[n,m] y) "
    "{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
}


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')


def kernels_of(text: str) -> list[TritonKernel]:
    made = captured(parsed(text))
    assert not made.plan.fallbacks
    return [k for region in made.plan.regions for k in Simulated(region, made.facts, made.model.graph.inputs).kernels]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_access_is_masked_or_a_proven_scalar(name: str):
    for kernel in kernels_of(GRAPHS[name]):
        calls = [n for n in ast.walk(ast.parse(kernel.text)) if isinstance(n, ast.Call)]
        accesses = [n for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr in ("load", "store")]
        assert accesses
        for access in accesses:
            masked = any(k.arg == "mask" for k in access.keywords)
            blocks = {n.id for n in ast.walk(access.args[0]) if isinstance(n, ast.Name)} - {"tl"}
            only_pointer = all(re.fullmatch(r"b\d+", name) for name in blocks)
            assert masked or only_pointer, ast.unparse(access)


@pytest.fixture
def binaries(tmp_path: Path) -> Binaries:
    return Binaries(Knobs.from_env().with_(cache_dir=tmp_path))


def compiled(binaries: Binaries, kernels: list[TritonKernel], targets: Any) -> dict[Job, Binary | str]:
    return binaries.make([Job(k, c, t) for k in kernels for c in k.configs for t in targets])


def test_a_kernel_compiles_for_both_makers(binaries: Binaries):
    targets = [t for t in TARGETS if t.name in ("sm_80", "gfx942")]
    made = compiled(binaries, kernels_of(GRAPHS["softmax"])[:1], targets)
    wrong = {f"{job.target.name}: {found}" for job, found in made.items() if isinstance(found, str)}
    assert not wrong
    assert {job.target.name for job in made} == {t.name for t in targets}


@pytest.mark.full
@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_compile_for_every_target(name: str, binaries: Binaries, tmp_path: Path):
    made = compiled(binaries, kernels_of(GRAPHS[name]), TARGETS)
    assert not [f"{job.target.name}: {found}" for job, found in made.items() if isinstance(found, str)]
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    for place, (job, found) in enumerate(made.items()):
        if job.target.ptx and isinstance(found, Binary):
            file = tmp_path / f"{place}.ptx"
            file.write_text(found.text)
            for arch in ("sm_80", "sm_90"):
                subprocess.run([str(tool), f"-arch={arch}", str(file), "-o", "/dev/null"], check=True)


@pytest.mark.full
def test_attention_compiles_for_every_target(binaries: Binaries):
    graph = "(float[b,4,m,64] q, float[b,4,n,64] k, float[b,4,n,64] v, float[m,n] a) => (float[b,4,m,64] y) "
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> g {graph} {{ y = Attention(q, k, v, a) }}'
    )
    made = captured(model)
    assert not made.plan.fallbacks
    kernels = list(Simulated(made.plan.regions[0], made.facts, made.model.graph.inputs).kernels)
    found = compiled(binaries, kernels[-1:], TARGETS)
    assert not [f"{job.target.name}: {binary}" for job, binary in found.items() if isinstance(binary, str)]


def test_a_binary_is_compiled_once(binaries: Binaries, monkeypatch: pytest.MonkeyPatch):
    kernels = kernels_of(GRAPHS["chain"])
    first = compiled(binaries, kernels, TARGETS[:1])
    monkeypatch.setattr(Binaries, "_compile", lambda *_: pytest.fail("it is in the cache"))
    assert compiled(binaries, kernels, TARGETS[:1]) == first


def test_what_does_not_compile_is_told_with_the_compilers_words(binaries: Binaries):
    kernel = kernels_of(GRAPHS["chain"])[0]
    from dataclasses import replace

    broken = replace(kernel, text=kernel.text.replace("tl.load(b0", "tl.loud(b0"))
    [found] = compiled(binaries, [replace(broken, configs=kernel.configs[:1])], TARGETS[:1]).values()
    assert isinstance(found, str) and "loud" in found


def test_special_values_go_through():
    x = np.array([[np.nan, 1, 2, 3], [np.inf, 1, -np.inf, 0], [-np.inf, -np.inf, -5, 1], [0.0, -0.0, 1e38, -1e38]], "f")
    graph = "(float[n,m] x) => (float[n,1] top, float[n,1] low, int64[n,1] at, float[n,m] s) "
    graph += "{ a = Constant<value = int64[1] {1}>() top = ReduceMax(x, a) low = ReduceMin(x, a) "
    graph += "at = ArgMax<axis=1>(x) s = Tanh(x) }"
    made = captured(parsed(graph))
    values = dict.fromkeys(made.model.graph.inputs, x)
    for pick in (0, 1):
        for region in made.plan.regions:
            values |= Simulated(region, made.facts, made.model.graph.inputs).run(values, pick)
        top, low, at, s = (values[o] for o in made.model.graph.outputs)
        np.testing.assert_array_equal(top[:, 0], x.max(1))
        np.testing.assert_array_equal(low[:, 0], x.min(1))
        np.testing.assert_array_equal(at[:, 0], x.argmax(1))
        np.testing.assert_allclose(s, np.tanh(x), rtol=5e-7)


SAMPLE = (
    "test_abs",
    "test_gelu_default_1",
    "test_softmax_axis_1",
    "test_layer_normalization_2d_axis0",
    "test_cumsum_2d_axis_1",
    "test_reduce_log_sum_exp_do_not_keepdims_random",
    "test_argmin_default_axis_example_select_last_index",
    "test_gather_negative_indices",
    "test_constant_pad",
    "test_slice",
    "test_spacetodepth_crd_mode_example",
    "test_concat_3d_axis_1",
    "test_mod_mixed_sign_float32",
    "test_mod_mixed_sign_int8",
    "test_div_uint8",
    "test_cast_FLOAT16_to_DOUBLE",
    "test_quantizelinear_axis",
    "test_where_example",
    "test_rotary_embedding_interleaved",
    "test_attention_4d_attn_mask_bool",
    "test_attention_bidirectional_window",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_cases_of_the_node_suite(name: str):
    assert run_case(name) == "pass"
