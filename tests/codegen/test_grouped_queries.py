"""grouped_queries_unit.h in a region: sizes around its blocks, caches in place, bad numbers of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smelt
from smelt.base.target import host_features
from smelt.ops.group_query_attention import grouped_reference

LEVELS = ["v2", *(["v3"] if "avx2" in host_features() else []), *(["v4"] if "avx512bw" in host_features() else [])]
BEST = LEVELS[-1]
HEADS, KV_HEADS = 6, 2
TEXT = """(float[b,s,{q}] q, float[b,s,{k}] k, float[b,s,{k}] v, float[b,2,p,{d}] old_k, float[b,2,p,{d}] old_v,
           int32[b] last, int32[1] total{more}) => (float[b,s,{q}] y, float[b,2,n,{d}] new_k, float[b,2,n,{d}] new_v)
           {{ y, new_k, new_v = com.microsoft.GroupQueryAttention<num_heads=6, kv_num_heads=2{attributes}>(
              q, k, v, old_k, old_v, last, total{given}) }}"""
Call = dict[str, np.ndarray]


def model(depth: int, attributes: str = "", more: str = "", given: str = "") -> onnx.ModelProto:
    sizes = {"q": HEADS * depth, "k": KV_HEADS * depth, "d": depth}
    text = TEXT.format(**sizes, attributes=attributes, more=more, given=given)
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]> g {text}')


def call(depth: int, rows: int, past: int, keys: list[int], seed: int = 0) -> Call:
    """The cache is a buffer when it has room for all keys."""
    rng, batch = np.random.default_rng([seed, rows, past, *keys]), len(keys)
    shapes = {
        "q": (batch, rows, HEADS * depth), "k": (batch, rows, KV_HEADS * depth), "v": (batch, rows, KV_HEADS * depth),
        "old_k": (batch, KV_HEADS, past, depth), "old_v": (batch, KV_HEADS, past, depth),
    }  # fmt: skip
    made: Call = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return made | {"last": np.array(keys, np.int32) - 1, "total": np.array([max(keys)], np.int32)}


def expected(given: Call, **how: Any) -> tuple[np.ndarray, ...]:
    wide = [given[n].astype(np.float64) for n in ("q", "k", "v", "old_k", "old_v")]
    return grouped_reference(*wide, given["last"], given["total"], num_heads=HEADS, kv_num_heads=KV_HEADS, **how)


Runner = Callable[[Call], list[np.ndarray]]


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[..., Runner]]:
    """Runs a model, by its depth, attributes and further operands; each is compiled once for a level."""
    made: dict[tuple[Any, ...], Any] = {}

    def get(*key: Any, level: str = BEST) -> Runner:
        if (level, *key) not in made:
            text = model(*key).SerializeToString()
            one = made[level, *key] = smelt.compile(text, force=True, levels=level, verify=False, threads=2)
            assert not one.result.plan.fallbacks and one.result.generated is not None
            entries = one.result.generated.source.entries
            assert any(kernel.name == "smelt_grouped_queries" for entry in entries for kernel in entry.kernels)
        return made[level, *key].run

    yield get
    for one in made.values():
        one.close()


SIZES = [
    (1, 0, [1]), (5, 0, [5]), (200, 0, [200]), (1, 8, [9, 4]), (1, 12, [9, 4]), (7, 6, [13]), (3, 90, [36]),
    (1, 700, [700]), (2, 1100, [1090, 3]), (1, 1024, [1024, 513, 512, 1]), (300, 700, [640]), (16, 140, [128, 129, 17]),
    (33, 127, [160]),
]  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("depth", [64, 24, 3])
def test_rows_keys_and_buffers_of_any_length(compiled: Callable[..., Runner], depth: int, level: str) -> None:
    for sizes in SIZES:
        given = call(depth, *sizes)
        for found, wanted in zip(compiled(depth, level=level)(given), expected(given), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=3e-6, err_msg=str(sizes))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 140), st.lists(st.integers(0, 600), min_size=1, max_size=3), st.integers(0, 40), st.integers(0, 9)
)
def test_random_sizes(rows: int, before: list[int], room: int, seed: int) -> None:
    keys = [n + rows for n in before] if max(before) else [rows] * len(before)
    given = call(24, rows, max(before) + room, keys, seed)
    if max(keys) == rows:
        given["last"][:] = rows - 1
    for found, wanted in zip(_shared(24)(given), expected(given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=3e-6)


_KEPT: dict[int, Any] = {}


def _shared(depth: int) -> Callable[[Call], list[np.ndarray]]:
    """Hypothesis calls a test many times with one model."""
    if depth not in _KEPT:
        _KEPT[depth] = smelt.compile(model(depth).SerializeToString(), force=True, levels=BEST, verify=False)
    return _KEPT[depth].run


@pytest.mark.parametrize("attributes", [", softcap=2.0", ", scale=0.3", ", smooth_softmax=1"])
def test_ways_to_score(compiled: Callable[..., Runner], attributes: str) -> None:
    name, value = attributes[2:].split("=")
    how = {name: float(value) if "." in value else int(value)}
    for sizes in [(1, 12, [9, 4]), (40, 3, [43]), (1, 700, [690, 520])]:
        given = call(24, *sizes)
        wanted = expected(given, **how)
        np.testing.assert_allclose(compiled(24, attributes)(given)[0], wanted[0], rtol=2e-5, atol=3e-6)


def test_a_sink_of_each_head(compiled: Callable[..., Runner]) -> None:
    sink = np.linspace(-3, 3, HEADS, dtype=np.float32)
    for sizes in [(1, 12, [9, 4]), (40, 3, [43]), (1, 700, [690, 520])]:
        given = call(24, *sizes)
        found = compiled(24, "", f", float[{HEADS}] sink", ", , , , , sink")({**given, "sink": sink})
        np.testing.assert_allclose(found[0], expected(given, sink=sink)[0], rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["q", "k", "v", "old_k", "old_v"])
def test_what_is_not_finite_spoils_what_the_reference_says(
    compiled: Callable[..., Runner], name: str, value: float
) -> None:
    given = call(24, 3, 160, [150])
    if name[:3] == "old":
        given[name][0, 1, 7, 3] = value
        given[name][0, 1, 155, 3] = np.nan  # beyond the keys: nobody may see it
    else:
        given[name][0, 1, 30] = value
    with np.errstate(all="ignore"):
        wanted = expected(given)
    np.testing.assert_allclose(compiled(24)(given)[0], wanted[0], rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize(("last", "total"), [(-2, 4), (200, 12), (12, 12)])
def test_a_number_of_keys_that_the_cache_has_no_place_for(
    compiled: Callable[..., Runner], last: int, total: int
) -> None:
    given = call(24, 1, 12, [9])
    given["last"][0], given["total"][0] = last, total
    with pytest.raises(Exception, match="index"):
        compiled(24)(given)


def test_a_shared_buffer_is_written_in_place_and_nowhere_else(tmp_path: Path) -> None:
    """Past and present are one OrtValue, as onnxruntime-genai binds them: only the new keys' places change."""
    depth, room, keys = 24, 96, 40
    smelt.compile(model(depth).SerializeToString(), force=True, levels=BEST, verify=False).save(tmp_path / "out")
    options = ort.SessionOptions()
    (library,) = [p for p in (tmp_path / "out").iterdir() if p.suffix == ".so"]
    options.register_custom_ops_library(str(library))
    session: Any = ort.InferenceSession(str(tmp_path / "out" / "model.onnx"), options)
    for rows in (1, 5):
        given = call(depth, rows, room, [keys])
        wanted = expected(given)
        caches = {name: ort.OrtValue.ortvalue_from_numpy(given[name]) for name in ("old_k", "old_v")}
        binding = session.io_binding()
        binding.bind_output("y")
        for name in ("q", "k", "v", "last", "total"):
            binding.bind_cpu_input(name, given[name])
        for name, cache in caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(name.replace("old", "new"), cache)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], wanted[0], rtol=2e-5, atol=3e-6)
        for name, new in (("old_k", wanted[1]), ("old_v", wanted[2])):
            after, before = caches[name].numpy(), given[name]
            assert np.array_equal(after[:, :, :keys], new[:, :, :keys].astype(np.float32))
            assert np.array_equal(after[:, :, keys:], before[:, :, keys:])  # no zeros: nothing was copied


def test_caches_are_written_where_nobody_asks_for_the_attention(tmp_path: Path) -> None:
    made = model(16)
    del made.graph.output[0]
    with smelt.compile(made, force=True, levels=BEST, verify=False) as compiled:
        for given, past in ((call(16, 3, 7, [4, 7]), 7), (call(16, 1, 700, [650, 9]), 700)):
            for mine, theirs in zip(compiled.run(given), expected(given)[1:], strict=True):
                np.testing.assert_allclose(mine[:, :, :past], theirs[:, :, :past], rtol=1e-6, atol=1e-6)
