"""Feeds that do not fit, through `smelt.compile`: an error that says what to change, then the next call works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build import F, model, node

import smelt
from smelt.base import Config, host_arch
from smelt.base.errors import InputError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
NODES = [node("Add", "x c", "a"), node("Exp", "a", "b"), node("ReduceSum", "b axes", "s"), node("Div", "b s", "y")]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[smelt.CompiledModel]:
    constants = {"c": np.full(4, -5, np.float32), "axes": np.array([-1])}
    proto = model(NODES, {"x": (F, ["n", 4])}, {"y": (F, ["n", 4])}, constants)
    config = Config.from_env().with_(cache_dir=tmp_path_factory.mktemp("calls") / "cache")
    with smelt.compile(proto, config=config, levels="v2", force=True, verify=False) as made:
        assert made.coverage.in_kernels == 4
        yield made


def wanted(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - 5)
    return e / e.sum(axis=-1, keepdims=True)


WRONG: dict[str, Any] = {
    "dtype": {"x": X.astype(np.float64)},
    "integers": {"x": X.astype(np.int64)},
    "rank": {"x": X[0]},
    "more_rank": {"x": X[None]},
    "scalar": {"x": np.float32(1)},
    "width": {"x": X[:, :3]},
    "missing": {},
    "extra": {"x": X, "z": X},
    "other_name": {"X": X},
    "not_named": X,
    "too_many": [X, X],
    "none": {"x": None},
    "text": {"x": "abc"},
    "objects": {"x": np.array([[object()] * 4])},
    "strings": {"x": np.array([["a"] * 4])},
    "ragged": {"x": [[1.0, 2.0], [1.0]]},
    "structured": {"x": np.zeros((3, 4), [("a", "f4")])},
}


@pytest.mark.parametrize("name", WRONG)
def test_feeds_that_do_not_fit_are_refused_and_the_next_call_works(compiled: smelt.CompiledModel, name: str) -> None:
    with pytest.raises(InputError) as caught:
        compiled.run(WRONG[name])
    assert caught.value.code.startswith("SM-INPUT") and caught.value.hint
    np.testing.assert_allclose(compiled.run({"x": X})[0], wanted(X), rtol=1e-5)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "columns_first": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1],
    "every_other": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "read_only": lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
    "misaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.float32, offset=1).reshape(x.shape),
    "big_endian": lambda x: x.astype(">f4"),
    "subclass": lambda x: x.view(np.matrix),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_memory_layout_gives_the_same(compiled: smelt.CompiledModel, name: str) -> None:
    given = LAYOUTS[name](X.copy())
    plain = np.asarray(given, np.float32)
    try:
        made = compiled.run({"x": given})[0]
    except InputError:
        assert name in ("big_endian", "subclass")
        return
    np.testing.assert_allclose(made, wanted(plain), rtol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
def test_any_number_of_rows_none_included(compiled: smelt.CompiledModel, rows: int) -> None:
    x = np.random.default_rng(rows).normal(0, 1, (rows, 4)).astype(np.float32)
    made = compiled.run({"x": x})[0]
    assert made.shape == (rows, 4)
    np.testing.assert_allclose(made, wanted(x), rtol=1e-5)


def test_a_model_for_another_architecture_is_kept_but_not_run(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    other = "aarch64" if host_arch() == "x86-64" else "x86-64"
    proto = model([node("Exp", "x", "a"), node("Neg", "a", "y")], {"x": (F, [4])}, {"y": (F, [4])})
    made = smelt.compile(proto, tmp_path / "out", arch=other, force=True)
    assert (tmp_path / "out" / "manifest.json").is_file()
    with pytest.raises(InputError, match=f"compiled for {other}"):
        made.run({"x": np.ones(4, np.float32)})
