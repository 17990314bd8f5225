"""The seam of `ir/backend.py`, by a second backend: from capture to a running artifact, alone and beside the first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import smelt
from smelt.base.dtype import BY_NAME
from smelt.base.errors import ConfigError, InputError
from smelt.codegen import register_backend, registry
from smelt.ir.backend import Capabilities
from smelt.ir.records import Claim

sys.path.insert(0, str(Path(__file__).parents[1]))
from plain_backend import PlainBackend

RANDOM = np.random.default_rng(5)
HEAD = '<ir_version: 9, opset_import: ["" : 20]> g '
MODELS = {
    "maps, reductions, views and a product": """(float[n, 6] x, float[6, 4] w) => (float[m, 4] y) {
        a = MatMul(x, w)  b = Softmax(a)  c = Gelu(b)  d = Transpose<perm = [1, 0]>(c)
        e = Concat<axis = 1>(d, d)  y = Transpose<perm = [1, 0]>(e) }""",
    "windows": """(float[n, 4, h, 9] x, float[6, 2, 3, 2] w) => (float[a, b, c, d] y) {
        p = Conv<group = 2, strides = [2, 1], pads = [1, 0, 1, 1], dilations = [1, 2]>(x, w)
        q = MaxPool<kernel_shape = [2, 3], pads = [0, 1, 1, 1]>(p)
        y = AveragePool<kernel_shape = [2, 2], pads = [1, 0, 0, 1], count_include_pad = 1>(q) }""",
    "a transposed convolution": """(float[n, 4, h, 5] x, float[4, 3, 3, 2] w) => (float[a, b, c, d] y) {
        y = ConvTranspose<group = 2, strides = [2, 3], pads = [1, 0, 0, 1], output_padding = [1, 0]>(x, w) }""",
    "scans and gathers": """(float[n, 5] x, int64[k] at) => (float[a, 5] y, int64[b] top) {
        axis = Constant<value_int = 1>()  a = CumSum<exclusive = 1, reverse = 1>(x, axis)
        y = Gather(a, at)  top = ArgMax<axis = 0, keepdims = 0>(x) }""",
    "functions in C": """(float[3, n, 4] x, float[1, 12, 4] w) => (float[a, b, c, d] y, int64[e, f] at) {
        y = GRU<hidden_size = 4>(x, w, w)  at = NonZero(x) }""",
    "integers": """(int32[n, 3] x, int32[3] d) => (int32[n, 3] y, bool[n, 3] z) {
        q = Div(x, d)  m = Mod(x, d)  y = Mul(q, m)  z = Less(q, m) }""",
}


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    known = dict(registry._REGISTERED)
    register_backend(PlainBackend)
    yield
    registry._REGISTERED.clear()
    registry._REGISTERED.update(known)


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    made = {}
    for place, value in enumerate(model.graph.input):
        shape = [d.dim_value or 5 + place for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        whole = RANDOM.integers(1, 5, shape) * RANDOM.choice([-1, 1], shape)
        made[value.name] = whole.astype(dtype) if dtype.kind == "i" else RANDOM.standard_normal(shape).astype(dtype)
    return made


@pytest.mark.parametrize("text", MODELS.values(), ids=MODELS)
def test_the_plain_backend_takes_a_model_from_capture_to_a_running_artifact(text: str) -> None:
    """Verified as every artifact is; and it agrees with the C backend, which is not verified here: its transposed
    convolution makes NaN of infinite weights that come at run time."""
    model = onnx.parser.parse_model(HEAD + text)
    given, results = feeds(model), {}
    for name in ("c", "plain"):
        with smelt.compile(model, backend=name, force=True, levels="v2", threads=1, verify=name == "plain") as compiled:
            assert compiled.coverage.in_kernels == compiled.coverage.nodes, compiled.result.plan.fallbacks
            assert {region.backend for region in compiled.result.plan.regions} == {name}
            results[name] = compiled.run(given)
    for fast, slow in zip(results["c"], results["plain"], strict=True):
        assert fast.dtype == slow.dtype
        np.testing.assert_allclose(fast, slow, rtol=2e-6, atol=2e-6)


class OnlySoftmax(PlainBackend):
    def claims(self, node: ir.Node) -> Claim:
        return super().claims(node) if node.op_type == "Softmax" else Claim(False, "no softmax")


class OnlyDoubles(PlainBackend):
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(("f64",)))


class KnownSizes(PlainBackend):
    capabilities: ClassVar[Capabilities] = Capabilities(frozenset(BY_NAME), symbolic_sizes=False)


def test_two_backends_serve_one_model() -> None:
    register_backend(OnlySoftmax)
    model = onnx.parser.parse_model(HEAD + MODELS["maps, reductions, views and a product"])
    given = feeds(model)
    with smelt.compile(model, backend="plain,c", force=True, levels="v2", threads=1) as compiled:
        of = {node.op_type: region.backend for region in compiled.result.plan.regions for node in region.nodes}
        assert of["Softmax"] == "plain" and of["MatMul"] == of["Gelu"] == "c"
        assert compiled.coverage.in_kernels == compiled.coverage.nodes
        mixed = compiled.run(given)
    with smelt.compile(model, force=True, levels="v2", threads=1) as compiled:
        np.testing.assert_allclose(mixed[0], compiled.run(given)[0], rtol=2e-6, atol=2e-6)


def test_a_function_in_c_is_one_unit_for_both_backends() -> None:
    class OnlyOne(PlainBackend):
        def claims(self, node: ir.Node) -> Claim:
            return super().claims(node) if node.name == "first" else Claim(False, "not the first")

    register_backend(OnlyOne)
    text = "(float[3, n] x) => (int64[a, b] y, int64[c, d] z) { y = NonZero(x) r = Abs(x) z = NonZero(r) }"
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.node[0].name = "first"
    with smelt.compile(model, backend="plain,c", force=True, levels="v2", threads=1) as compiled:
        assert {region.backend for region in compiled.result.plan.regions} == {"plain", "c"}
        given = feeds(model)
        y, z = compiled.run(given)
    np.testing.assert_array_equal(y, np.nonzero(given["x"]))
    np.testing.assert_array_equal(z, y)


@pytest.mark.parametrize(
    ("kind", "reason"), [(OnlyDoubles, "no kernels of float"), (KnownSizes, "sizes that are known")]
)
def test_what_is_beyond_a_backends_capabilities_falls_back_with_the_reason(
    kind: type[PlainBackend], reason: str
) -> None:
    register_backend(kind)
    model = onnx.parser.parse_model(HEAD + "(float[n] x) => (float[n] y) { z = Exp(x) y = Neg(z) }")
    with smelt.compile(model, backend="plain", force=True, levels="v2", threads=1) as compiled:
        assert not compiled.result.plan.regions
        assert {f.reason.split(":")[0] for f in compiled.result.plan.fallbacks} == {"backend plain"}
        assert all(reason in fallback.reason for fallback in compiled.result.plan.fallbacks)


def test_sizes_that_do_not_fit_are_refused_before_memory_is_touched() -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n, k] x, float[k, 3] w) => (float[n, 3] y) { y = MatMul(x, w) }")
    unlike = {"x": np.ones((2, 5), np.float32), "w": np.ones((4, 3), np.float32)}
    compiled = smelt.compile(model, backend="plain", force=True, levels="v2", threads=1)
    with compiled:
        with pytest.raises(Exception, match="axis 0 has size 4, expected 5"):
            compiled.executable.session.run(None, unlike)
        with pytest.raises(InputError, match=r"'k' is 5 in input 'x' \[2,5\] and 4 in input 'w'"):
            compiled.run(unlike)


def test_an_unknown_backend_is_an_error_that_lists_the_known_ones() -> None:
    model = onnx.parser.parse_model(HEAD + "(float[n] x) => (float[n] y) { y = Exp(x) }")
    with pytest.raises(ConfigError, match="no backend 'fast'") as found:
        smelt.compile(model, backend="fast")
    listed = found.value.hint.removeprefix("Known are ").rstrip(".").split(", ")
    assert listed[0] == "c"
    assert "plain" in listed
