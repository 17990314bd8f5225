"""Attention of random sizes in kernels, against the lowering in float64: odd lengths, groups of heads, masks, pasts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import smelt
from smelt.base.config import Config

LENGTHS = st.one_of(st.integers(1, 6), st.sampled_from([15, 16, 17, 31, 33, 64, 70]))
VARIANTS = {
    "plain": ("", "", "", ""),
    "causal": ("", "", "is_causal = 1", ""),
    "capped": ("", "", "softcap = 1.5, scale = 0.7", ""),
    "added": (", float[b,1,s,t] m", ", m", "", ""),
    "boolean": (", bool[s,t] m", ", m", "is_causal = 1", ""),
    "past": (", float[b,g,p,d] pk, float[b,g,p,e] pv", ", , pk, pv", "is_causal = 1",
             ", float[b,g,u,d] nk, float[b,g,u,e] nv"),
    "past_masked": (", bool[b,1,s,u] m, float[b,g,p,d] pk, float[b,g,p,e] pv", ", m, pk, pv", "",
                    ", float[b,g,u,d] nk, float[b,g,u,e] nv"),
}  # fmt: skip


def text_of(variant: str) -> str:
    """The sizes of heads are constants, as in real models; lengths are free."""
    inputs, operands, attributes, outputs = VARIANTS[variant]
    names = "y, nk, nv" if outputs else "y"
    settings_ = f"<{attributes}>" if attributes else ""
    text = (
        f"(float[b,h,s,d] q, float[b,g,t,d] k, float[b,g,t,e] v{inputs}) => (float[b,h,s,e] y{outputs})"
        f" {{ {names} = Attention{settings_}(q, k, v{operands}) }}"
    )
    for name, size in {"h,": "6,", "g,": "2,", ",d]": ",10]", ",e]": ",12]"}.items():
        text = text.replace(name, size)
    return text


@pytest.fixture(scope="module", params=["", "-DSMELT_B2B_LONG=16 -DSMELT_B2B_SPAN=16"], ids=["whole rows", "blocks"])
def compiled(request: pytest.FixtureRequest):
    """One artifact per variant serves every size: nothing is rebuilt between examples."""
    made = {}
    config = Config.from_env().with_(cflags=request.param)
    for variant in VARIANTS:
        model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 24]> g {text_of(variant)}')
        how = {"force": True, "levels": "v3", "verify": False, "threads": 2, "config": config}
        made[variant] = model, smelt.compile(model.SerializeToString(), **how)
        assert not made[variant][1].result.plan.fallbacks
    yield made
    for _, one in made.values():
        one.close()


@st.composite
def examples(draw):
    batch, rows, keys, past = draw(st.integers(1, 3)), draw(LENGTHS), draw(LENGTHS), draw(LENGTHS)
    return draw(st.sampled_from(sorted(VARIANTS))), batch, rows, keys, past, draw(st.integers(0, 2**31))


def feeds_of(variant: str, batch: int, rows: int, keys: int, past: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"q": (batch, 6, rows, 10), "k": (batch, 2, keys, 10), "v": (batch, 2, keys, 12)}
    if variant.startswith("past"):
        shapes |= {"pk": (batch, 2, past, 10), "pv": (batch, 2, past, 12)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if variant == "added":
        feeds["m"] = np.where(rng.random((batch, 1, rows, keys)) < 0.3, -np.inf, 1.0).astype(np.float32)
    if variant == "boolean":
        feeds["m"] = rng.random((rows, keys)) < 0.6
    if variant == "past_masked":
        feeds["m"] = rng.random((batch, 1, rows, past + keys)) < 0.6
    return feeds


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(example=examples())
def test_attention_of_any_size_is_right(compiled, example):
    check(compiled, example)


@pytest.mark.full
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(example=examples())
def test_attention_of_many_more_sizes_is_right(compiled, example):
    check(compiled, example)


def check(compiled, example) -> None:
    variant, *sizes = example
    model, kernels = compiled[variant]
    feeds = feeds_of(variant, *sizes)
    found = kernels.run(feeds)
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(model).run(None, wide)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=f"{example}")
