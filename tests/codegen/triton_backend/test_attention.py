"""Attention as one kernel with online softmax: several blocks of columns, masks, special values, other forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from simulate import Simulated, captured

from smelt.base.config import Config as Knobs
from smelt.codegen.triton.binaries import Binaries, Job
from smelt.codegen.triton.kernel import TARGETS, GpuTarget
from smelt.codegen.triton.region import write_device

Array = np.ndarray[Any, Any]
MASKED = "(float[b,2,m,16] q, float[b,2,n,16] k, float[b,2,n,24] v, float[m,n] a) => (float[b,2,m,24] y)"
PLAIN = "(float[b,4,m,16] q, float[b,2,n,16] k, float[b,2,n,16] v) => (float[b,4,m,16] y)"


def made_of(signature: str, nodes: str) -> tuple[Any, list[Simulated]]:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g {signature} {{ {nodes} }}')
    made = captured(model)
    assert not made.plan.fallbacks
    return made.model.graph, [Simulated(region, made.facts, made.model.graph.inputs) for region in made.plan.regions]


@pytest.fixture(scope="module")
def masked() -> tuple[Any, list[Simulated]]:
    return made_of(MASKED, "y = Attention(q, k, v, a)")


def run(made: tuple[Any, list[Simulated]], *arrays: Array) -> Array:
    graph, regions = made
    values = dict(zip(graph.inputs, arrays, strict=True))
    for region in regions:
        values |= region.run(values)
    return values[graph.outputs[0]]


def forms(made: tuple[Any, list[Simulated]]) -> set[str]:
    kernels = [kernel for region in made[1] for kernel in region.kernels]
    return {config.reason for kernel in kernels for config in kernel.configs if "attention" in config.reason}


def attended(q: Array, k: Array, v: Array, bias: Array) -> Array:
    """In float64; a row of nothing but masked places gives zeros."""
    with np.errstate(all="ignore"):
        scores = q.astype("d") @ k.astype("d").swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
        top = scores.max(-1, keepdims=True)
        powers = np.exp(scores - np.where(top == -np.inf, 0, top))
        empty = (bias.max(-1, keepdims=True) == -np.inf) & np.ones_like(top, bool)
        weights = np.where(empty, 0, powers / powers.sum(-1, keepdims=True))
        return weights @ v.astype("d")


def agrees(found: Array, wanted: Array) -> None:
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    assert error_of(found, wanted) <= 1e-6


def error_of(found: Array, wanted: Array) -> float:
    real = np.isfinite(wanted)
    scale = np.sqrt(np.mean(wanted[real] ** 2)) if real.any() else 0.0
    return float(np.max(np.abs(found - wanted)[real] / (np.abs(wanted[real]) + scale), initial=0.0))


def error_of_stock(arrays: list[Array], wanted: Array) -> float:
    """That of ONNX Runtime's own attention on the same input, the yardstick where float32 does not reach 1e-6."""
    text = f'<ir_version: 10, opset_import: ["" : 23]> g {MASKED} {{ y = Attention(q, k, v, a) }}'
    session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    return error_of(session.run(None, dict(zip("qkva", arrays, strict=True)))[0], wanted)


def tensors(seed: int, m: int, n: int) -> list[Array]:
    random = np.random.default_rng(seed)
    sizes = ((1, 2, m, 16), (1, 2, n, 16), (1, 2, n, 24), (m, n))
    return [random.standard_normal(size).astype("f") for size in sizes]


def test_a_masked_softmax_walks_its_columns_once(masked: tuple[Any, list[Simulated]]):
    assert forms(masked) == {f"attention, online softmax, {how}" for how in ("vector loads", "any alignment")}
    (kernel,) = [k for region in masked[1] for k in region.kernels if "tl.dot" in k.text]
    assert kernel.text.count("for c0 in range") == 1


@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))  # to shrink takes minutes here
@example(seed=830, m=27, n=172, hidden=0.0)
@given(seed=st.integers(0, 999), m=st.integers(1, 40), n=st.integers(1, 200), hidden=st.sampled_from([0.0, 0.5, 0.98]))
def test_any_mask_over_any_number_of_blocks(seed: int, m: int, n: int, hidden: float):
    q, k, v, a = tensors(seed, m, n)
    a[np.random.default_rng(seed + 1).random((m, n)) < hidden] = -np.inf
    found, wanted = run(MADE, q, k, v, a), attended(q, k, v, a)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    error = error_of(found, wanted)
    assert error <= 1e-6 or error <= 1.5 * error_of_stock([q, k, v, a], wanted)


MADE = made_of(MASKED, "y = Attention(q, k, v, a)")


def test_blocks_that_are_masked_first_last_and_whole(masked: tuple[Any, list[Simulated]]):
    q, k, v, a = tensors(3, 6, 150)
    a[0, :64], a[1, 64:], a[2, :], a[3, :149], a[4, 1:] = (-np.inf,) * 5
    found = run(masked, q, k, v, a)
    agrees(found, attended(q, k, v, a))
    assert not found[:, :, 2].any()


def test_maxima_that_rise_and_fall_from_block_to_block(masked: tuple[Any, list[Simulated]]):
    q, k, v, a = tensors(4, 4, 200)
    q *= 0  # scores of this size are exact without it
    a[0], a[1], a[2], a[3] = np.linspace(-3e4, 3e4, 200), np.linspace(3e4, -3e4, 200), 1e30, np.linspace(-9, 9, 200)
    agrees(run(masked, q, k, v, a), attended(q, k, v, a))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 70, 149])
def test_nan_and_inf_among_the_scores_stay_in_their_row(masked: tuple[Any, list[Simulated]], value: float, column: int):
    q, k, v, a = tensors(5, 3, 150)
    a[1, column] = value
    found = run(masked, q, k, v, a)
    assert np.isnan(found[:, :, 1]).all() and np.isfinite(found[:, :, (0, 2)]).all()
    agrees(found, attended(q, k, v, a))


def test_heads_that_share_keys_and_a_causal_mask():
    made = made_of(PLAIN, "y = Attention<is_causal = 1>(q, k, v)")
    assert all("online softmax" in form for form in forms(made))
    random = np.random.default_rng(6)
    q, k, v = (random.standard_normal((2, heads, 70, 16)).astype("f") for heads in (4, 2, 2))
    bias = np.where(np.tri(70, dtype=bool), 0, -np.inf)
    agrees(run(made, q, k, v), attended(q, k.repeat(2, 1), v.repeat(2, 1), bias))


def of_depth(depth: int) -> Any:
    text = f"(float[2,8,n,{depth}] q, float[2,8,n,{depth}] k, float[2,8,n,{depth}] v) => (float[2,8,n,{depth}] y)"
    return captured(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g {text} {{ y = Attention(q, k, v) }}')
    )


SMALLEST = [target for target in TARGETS if target.name == "sm_86"]


@pytest.mark.parametrize("targets", [SMALLEST, pytest.param(TARGETS, marks=pytest.mark.full)], ids=["smallest", "all"])
@pytest.mark.parametrize("depth", [64, 128])
def test_a_head_fits_the_shared_memory_of_each_target(depth: int, targets: Sequence[GpuTarget]):
    made = of_depth(depth)
    assert not made.plan.fallbacks
    kernels = [k for one in made.plan.regions for k in Simulated(one, made.facts, made.model.graph.inputs).kernels]
    jobs = [Job(kernel, config, target) for kernel in kernels for config in kernel.configs for target in targets]
    assert not [one for one in Binaries(Knobs.from_env()).make(jobs).values() if isinstance(one, str)]


def test_a_deeper_head_stays_with_the_provider():
    assert {one.reason for one in of_depth(256).plan.fallbacks} == {"a product: the GPU's own provider computes it"}


# Sizes that the file declares as equal and that each input has for itself, where the declaration does not hold.
SEPARATE = {
    "no mask": ("", "y = Attention(q, k, v)"),
    "mask of one batch": (", bool[b,1,m,n] a", "y = Attention(q, k, v, a)"),
    "mask of rows": (", bool[m,n] a", "y = Attention(q, k, v, a)"),
    "mask of keys": (", float[b,1,1,n] a", "y = Attention(q, k, v, a)"),
}


@pytest.mark.parametrize("form", SEPARATE)
def test_the_general_form_of_a_region_has_a_kernel_too(form: str):
    mask, node = SEPARATE[form]
    text = f"(float[b,2,m,16] q, float[b,2,n,16] k, float[b,2,n,16] v{mask}) => (float[b,2,m,16] y) {{ {node} }}"
    made = captured(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g {text}'))
    graph, general = made.model.graph, made.facts.general
    assert general is not None and not made.plan.fallbacks
    code = write_device(made.plan.regions[0], made.facts, list(graph.inputs), ())
    assert code.guarded == ("_general(env)" in code.text) == bool(mask)
    region = Simulated(made.plan.regions[0], general, graph.inputs)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, length, 16)).astype("f") for length in (5, 70, 70))
    for batch in (1, 2):  # one mask for all, or each its own
        shape = {"mask of rows": (5, 70), "mask of keys": (batch, 1, 1, 70)}.get(form, (batch, 1, 5, 70))
        a = rng.standard_normal(shape).astype("f") if "keys" in form else rng.random(shape) < 0.7
        given = [q, k, v, *([a] if mask else [])]
        [found] = region.run(dict(zip(graph.inputs, given, strict=True)), 0).values()
        bias = a if "keys" in form else np.where(a, 0, -np.inf)
        scores = q.astype("d") @ k.swapaxes(-1, -2) / 4 + (bias if mask else 0)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True) @ v, atol=1e-5)
