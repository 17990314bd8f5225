"""Sizes that only the run tells: whatever stock ONNX Runtime takes runs, and gives what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from many_graphs import plain_session, sessions
from size_check import Case, at_a_jump, check, differs
from size_graphs import SizeGraph

from smelt.base.config import Config
from smelt.base.target import find_target, runs_on_host

HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '
PER_LIBRARY = 100
SEEDS = 300
MANY_SEEDS = 20_000
PER_TEST = 1000

# A graph in onnx's text form, and the sizes of its inputs in several calls.
CASES: dict[str, tuple[str, list[list[tuple[int, ...]]]]] = {
    "two sizes that broadcast": (
        "(float[A] x, float[B] y) => (float[C] z) { s = Add(x, y) z = Mul(s, x) }",
        [[(1,), (5,)], [(5,), (1,)], [(5,), (5,)], [(1,), (0,)], [(0,), (0,)]],
    ),
    "one name for two sizes": (
        "(float[A] x, float[A] y) => (float[A] z) { s = Add(x, y) z = Mul(s, x) }",
        [[(1,), (5,)], [(5,), (1,)], [(5,), (5,)]],
    ),
    "flattened": (
        "(float[A, B] x, float[C, B] y) => (float[D] z) <int64[1] t = {-1}> "
        "{ p = Mul(x, y) q = Tanh(p) z = Reshape(q, t) }",
        [[(1, 3), (4, 3)], [(4, 3), (1, 3)], [(1, 3), (1, 3)], [(4, 3), (4, 3)]],
    ),
    "reversed": (
        "(float[A, B] x, float[C, B] y) => (float[D, B] z) "
        "<int64[1] k = {-1}, int64[1] e = {-1000}, int64[1] a = {0}> "
        "{ p = Mul(x, y) q = Tanh(p) z = Slice(q, k, e, a, k) }",
        [[(1, 3), (4, 3)], [(4, 3), (1, 3)], [(1, 3), (1, 3)], [(4, 3), (4, 3)]],
    ),
    "expanded": (
        "(float[A, B] x, float[C, B] y) => (float[D, E, B] z) <int64[3] t = {2, 1, 1}> "
        "{ p = Mul(x, y) q = Tanh(p) z = Expand(q, t) }",
        [[(1, 3), (4, 3)], [(4, 3), (1, 3)], [(1, 3), (1, 3)], [(4, 3), (4, 3)]],
    ),
    "two axes of one name": (
        '(float["?", 3, "?", "?"] x) => (float[n] y) <int64[1] a = {1}> { y = ReduceSum<keepdims = 0>(x, a) }',
        [[(1, 3, 48, 192)], [(2, 3, 1, 5)], [(2, 3, 0, 5)]],
    ),
    "a shape that is read only for its size": (
        "(float[A] x, float[A] y) => (float[A] z) { s = Shape(y) e = Expand(x, s) z = Neg(e) }",
        [[(1,), (5,)], [(5,), (1,)], [(5,), (5,)]],
    ),
    "a wrong declared output": (
        "(float[A, 4] x) => (float[7, 9] y) { y = Relu(x) }",
        [[(3, 4)], [(1, 4)], [(0, 4)]],
    ),
    "a declared intermediate": (
        "(float[A] x, float[B] y) => (float[A] z) <float[A] s> { s = Add(x, y) z = Mul(s, s) }",
        [[(1,), (5,)], [(5,), (1,)]],
    ),
    "sums over no columns of a product": (
        "(float[N, K] x, float[K, M] w) => (float[A, B] y, float[C] z) <int64[1] a = {1}> { t = MatMul(x, w) "
        "u = Tanh(t) y = ReduceSum(u, a) z = ReduceL2<keepdims = 0>(u, a) }",
        [[(9, 3), (3, 5)], [(9, 3), (3, 0)], [(2, 3), (3, 0)], [(300, 0), (0, 0)], [(0, 3), (3, 0)]],
    ),
    "sums over no columns of products": (
        "(float[G, N, K] x, float[G, K, M] w) => (float[A, B, C] y) <int64[1] a = {2}> "
        "{ t = MatMul(x, w) u = Tanh(t) y = ReduceSum(u, a) }",
        [[(2, 9, 3), (2, 3, 5)], [(2, 9, 3), (2, 3, 0)], [(5, 2, 3), (5, 3, 0)], [(1, 70, 0), (1, 0, 0)]],
    ),
    "sums over no columns of constant weights": (
        "(float[N, 4] x, float[M] s) => (float[A, B] y) <int64[1] a = {1}, float[4, 1] w = {1, 2, 3, 4}> "
        "{ t = MatMul(x, w) u = Add(t, s) y = ReduceSum(u, a) }",
        [[(9, 4), (7,)], [(9, 4), (0,)], [(2, 4), (0,)], [(0, 4), (0,)]],
    ),
    "a size that is twice what it is broadcast to": (
        '(float["?", "?"] x, float["?", "?"] y) => (float[A, B] z, float[C, D] w) <int64[2] t = {2, 1}> '
        "{ r = Relu(y) m = Min(x, r) k = Tile(m, t) z = Concat<axis = 1>(k, y, k) w = Neg(r) }",
        [[(1, 0), (0, 0)], [(0, 1), (0, 0)], [(1, 1), (0, 0)], [(0, 0), (0, 0)]],
    ),
    "pools of no images, which may have no pixels": (
        "(float[N, 2, 3, W] x) => (float[A, B, C, D] y) { m = MaxPool<kernel_shape = [3, 2], strides = [3, 2]>(x) "
        "a = AveragePool<kernel_shape = [3, 2], strides = [3, 2]>(x) y = Add(m, a) }",
        [[(0, 2, 3, 0)], [(0, 2, 3, 1)], [(2, 2, 3, 1)], [(2, 2, 3, 5)]],
    ),
    "a new shape with a 0 from a size": (
        "(float[A, B] x, float[C, D] y) => (float[E, F] z) { s = Shape(y) r = Reshape(x, s) z = Neg(r) }",
        [[(2, 3), (3, 2)], [(7, 0), (0, 0)], [(0, 3), (0, 3)]],
    ),
}


def inputs_of(model: onnx.ModelProto, shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    random = np.random.default_rng(3)
    names = [i.name for i in model.graph.input]
    return {n: random.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}


def test_each_known_case_runs_as_in_stock() -> None:
    models = [onnx.parser.parse_model(HEAD + text) for text, _ in CASES.values()]
    for place, (session, model) in enumerate(zip(sessions(models, Config.from_env()), models, strict=True)):
        name = list(CASES)[place]
        assert session is not None and not isinstance(session, Exception), f"{name}: {session}"
        for shapes in CASES[name][1]:
            feeds = inputs_of(model, shapes)
            found = session.run(None, {f"m{place}_{key}": value for key, value in feeds.items()})
            problem = differs(found, plain_session(model).run(None, feeds))
            assert not problem, f"{name} at {shapes}: {problem}"


def test_a_negative_size_in_the_file_is_no_size() -> None:
    model = onnx.parser.parse_model(HEAD + "(float[A, B] x) => (float[A, B] y) { y = Tanh(x) }")
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = -1
    (session,) = sessions([model], Config.from_env())
    assert session is not None and not isinstance(session, Exception)
    feeds = inputs_of(model, [(2, 5)])
    np.testing.assert_allclose(session.run(None, {"m0_x": feeds["x"]})[0], np.tanh(feeds["x"]), rtol=1e-6)


def test_an_empty_batch_of_indices_gathers_nothing() -> None:
    text = "(float[A, B] x, int64[A, 1] i) => (float[C] y) { y = GatherND<batch_dims = 1>(x, i) }"
    model = onnx.parser.parse_model(HEAD + text)
    (session,) = sessions([model], Config.from_env())
    assert session is not None and not isinstance(session, Exception)
    for rows, columns in ((0, 5), (0, 0), (3, 5)):
        feeds = {"m0_x": np.ones((rows, columns), np.float32), "m0_i": np.zeros((rows, 1), np.int64)}
        assert session.run(None, feeds)[0].shape == (rows,)


def test_what_rounding_decides_is_no_difference_and_a_wrong_element_is_one() -> None:
    """Seed 10435 compares x with t + (x - t)."""
    assert not check([10435], Config.from_env()).faults
    text = (
        "(float[A] x, float[A] y) => (float[A] z) { s = Sub(x, y) t = Add(s, y) c = Greater(x, t) z = Where(c, x, y) }"
    )
    model = onnx.parser.parse_model(HEAD + text)
    feeds = inputs_of(model, [(40,), (40,)])
    case = Case(1, SizeGraph(1), model, plain_session(model))
    right = case.stock.run(None, feeds)
    other = [np.where(right[0] == feeds["x"], feeds["y"], feeds["x"])]
    assert at_a_jump(case, feeds, [np.where(right[0] == feeds["x"], feeds["y"], right[0])], right)
    assert not at_a_jump(case, feeds, [other[0][::-1].copy()], right)


def fuzz(first: int, count: int, level: str = "v2") -> None:
    for start in range(first, first + count, PER_LIBRARY):
        tally = check(range(start, start + PER_LIBRARY), Config.from_env(), level)
        assert tally.compiled > PER_LIBRARY // 2 and tally.runs > tally.compiled, tally
        assert not tally.faults, "\n\n".join(tally.faults)


@pytest.mark.timeout(600)
def test_random_graphs_at_every_binding() -> None:
    fuzz(0, SEEDS)


@pytest.mark.full
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + MANY_SEEDS, PER_TEST))
def test_many_random_graphs_at_every_binding(first: int) -> None:
    """The levels that this machine runs take turns."""
    levels = [level for level in ("v2", "v3", "v4") if runs_on_host(find_target(level))]
    fuzz(first, PER_TEST, levels[first // PER_TEST % len(levels)])
