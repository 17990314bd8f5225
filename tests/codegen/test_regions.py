"""Whole regions, generated, compiled and run: one test per behaviour, several graphs per compilation."""
# ruff: noqa: E501  a graph is written on one line where that reads best

from __future__ import annotations

import numpy as np
import pytest
from region_check import OPSET, Graph, check, floats, whole

import smelt


def test_an_empty_shape_is_an_empty_vector():
    check(Graph("(float[2,3] x) => (int64[0] y) { y = Shape<start = 2, end = 1>(x) }", [floats(2, 3)]))


def test_movement_folds_into_what_reads_it():
    x = floats(2, 3, 4)
    check(
        Graph("(float[a,b,c] x) => (float[c,a,b] y) { t = Transpose<perm = [2, 0, 1]>(x)  y = Exp(t) }", [x]),
        Graph("(float[a,b,c] x) => (float[a,c] y) { t = Transpose<perm = [0, 2, 1]>(x)  y = ReduceSum<keepdims = 0>(t, k) }".replace(
            "{ t", "<int64[1] k = {2}> { t"), [x]),
        Graph("(float[a,b,c] x) => (float[b,m] y) { t = Transpose<perm = [1, 0, 2]>(x)  y = Flatten<axis = 1>(t) }", [x]),
        Graph("(float[a,b,c] x) => (float[d,c,b] y) { t = Concat<axis = 0>(x, x)  u = Neg(t)  y = Transpose<perm = [0, 2, 1]>(u) }", [x]),
    )  # fmt: skip


def test_reductions_over_any_axes_feed_what_comes_next():
    x = floats(3, 5, 7)
    graphs = []
    for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        listed = ", ".join(map(str, axes))
        graphs.append(Graph(
            f"(float[a,b,c] x) => (float[a,b,c] y) <int64[{len(axes)}] k = {{{listed}}}> "
            "{ s = ReduceMean(x, k)  d = Sub(x, s)  q = Mul(d, d)  v = ReduceSum(q, k)  r = Sqrt(v)  y = Div(d, r) }", [x],
        ))  # fmt: skip
    check(*graphs)


def test_the_softmax_of_any_axis_with_a_mask():
    x, mask = floats(2, 9, 5), whole(2, 1, 5, low=0, high=2).astype(bool)
    mask[:, :, 0] = True
    check(*(
        Graph(f"(float[a,b,c] x, bool[a,1,c] m) => (float[a,b,c] y) <float low = {{-10000.0}}> "
              f"{{ w = Where(m, x, low)  y = Softmax<axis = {axis}>(w) }}", [x, mask])
        for axis in (0, 1, 2)
    ))  # fmt: skip


def test_one_value_serves_several_outputs():
    x = floats(4, 6)
    check(
        Graph("(float[a,b] x) => (float[a,b] y, float[a,b] z) { y = Tanh(x)  z = Identity(y) }", [x]),
        Graph("(float[a,b] x) => (float[c,b] y, float[c,b] z) { y = Concat<axis = 0>(x, x)  z = Identity(y) }", [x]),
        Graph("(float[a,b] x) => (float[a,b] y, float[a,1] z, float[b] w) <int64[1] k = {1}, int64[1] j = {0}> "
              "{ y = Exp(x)  z = ReduceMax(y, k)  w = ReduceMin<keepdims = 0>(y, j) }", [x]),
    )  # fmt: skip


def test_sizes_of_zero_and_one_run():
    text = ("(float[a,b] x, float[1,b] s) => (float[a,b] y, float[a] r, float[b] q) <int64[1] k = {1}, int64[1] j = {0}> "
            "{ t = Mul(x, s)  y = Softmax<axis = 1>(t)  r = ReduceSum<keepdims = 0>(t, k)  q = ReduceSum<keepdims = 0>(t, j) }")  # fmt: skip
    check(*(Graph(text, [floats(a, b), floats(1, b)]) for a, b in ((0, 3), (3, 0), (1, 1), (1, 17), (17, 1))))


def test_integers_wrap_and_divide_without_trapping():
    low = np.iinfo(np.int64).min
    x, y = np.array([7, -7, low, 5, low], np.int64), np.array([2, 2, -1, 3, 1], np.int64)
    check(
        Graph("(int64[n] x, int64[n] y) => (int64[n] q) { q = Div(x, y) }", [x, y], [np.array([3, -3, low, 1, low])]),
        Graph(
            "(int64[n] x, int64[n] y) => (int64[n] q) { q = Mul(x, y) }", [x, y], [np.array([14, -14, low, 15, low])]
        ),
    )


def test_quantized_values_are_those_of_a_true_division():
    """A product with the reciprocal rounds differently just at the border between two integers."""
    k = np.arange(-200, 200, dtype=np.float32)
    check(
        Graph("(float[n] x) => (uint8[n] y) <float s = {0.3}, uint8 z = {128}> { y = QuantizeLinear(x, s, z) }",
              [(k + np.float32(0.5)) * np.float32(0.3)]),
        Graph("(float[n] x) => (float[n] y) <float s = {7.0}> { d = Div(x, s)  y = Floor(d) }", [k * 7]),
        Graph("(float[n] x) => (int32[n] y) <float s = {41.0}> { d = Div(x, s)  y = Cast<to = 6>(d) }", [k * 41]),
        Graph("(float[n] x) => (bool[n] y) <float s = {47.0}, float h = {6.0}> { d = Div(x, s)  y = GreaterOrEqual(d, h) }",
              [k * 47]),
    )  # fmt: skip


def test_a_value_needed_twice_is_made_before_what_needs_it():
    """Two costly masks that several loops read, one made from the other."""
    text = """(int64[b] n, int64[q] row, int64[k] col, float[q,k] m, float[b,h,q,k] s) => (float[b,h,q,k] y) <
        float zero = {0.0}, float low = {-inf}, int64[2] a = {1, 2}, int64[1] last = {3}, int64[1] second = {1}> {
      u = Unsqueeze(n, a)  r = Unsqueeze(row, second)  ru = Add(u, r)  tri = Less(ru, col)  f = Where(tri, low, zero)  c
      = Add(m, f) nu = Unsqueeze(n, a)  pad = Less(col, nu)  g = Where(pad, zero, low)  all = Add(c, g)  all4 =
      Unsqueeze(all, second) w = Add(s, all4)  p = Softmax(w)  top = ReduceMax(all4, last)  none = Equal(top, low)  y =
      Where(none, zero, p) }"""
    inputs = [np.array([2, 5, 6]), np.arange(2), np.arange(6), floats(2, 6), floats(3, 2, 2, 6)]
    check(Graph(text.replace("{-inf}", "{-1e30}"), inputs))


def test_an_output_may_be_the_transpose_of_another():
    x = floats(9, 9)
    check(
        Graph("(float[n,n] x) => (float[n,n] y, float[n,n] z) { y = Relu(x)  t = Transpose(y)  z = Exp(t) }", [x]),
        Graph("(float[n,n] x) => (float[n,n] y, float[n,n] z, float[n,n] w) "
              "{ y = Relu(x)  t = Transpose(y)  z = Exp(t)  u = Transpose(z)  w = Sin(u) }", [x]),
    )  # fmt: skip


def test_regions_that_differ_in_sizes_alone_do_not_mix():
    """Regions of one model, cut apart by a node that is left."""
    text = "(float[1,5,3,3] x, float[7,5,1,1] w) => (float[1,7,3,3] y) { a = LRN<size = 5>(x)  c = Conv(a, w)  y = LRN<size = 5>(c) }"
    check(Graph(text, [floats(1, 5, 3, 3), floats(7, 5, 1, 1)], fallback_nodes=True))


def test_the_same_model_gives_the_same_source_again():
    text = "(float[a,b,c] x) => (float[d,e] y) <int64[2] s = {0, -1}> { t = Transpose<perm = [1, 0, 2]>(x)  r = Reshape(t, s)  y = Softmax(r) }"
    made = []
    for _ in range(2):
        with smelt.compile(Graph(text, []).model(OPSET), force=True, levels="v2", verify=False) as compiled:
            made.append([unit.text for unit in compiled.result.generated.source.units])
    assert made[0] == made[1]


def test_several_vectors_in_flight_read_their_own_elements():
    """Long loops take several vectors at a time; nests of one region name their loops alike."""
    x, sq = floats(70), floats(41, 41)
    check(
        Graph("(float[b] x) => (float[d] t, float s) <int64[1] k = {2}, int64[1] a = {0}> "
              "{ t = Tile(x, k)  s = ReduceSumSquare<keepdims = 0>(t, a) }", [x]),
        Graph("(float[c,c] x) => (float[c,c] u, float[c,c] y, float[c,c] z) <int64 k = {0}> "
              "{ u = CumSum(x, k)  y = Tanh(u)  z = Softplus(u) }", [sq]),
    )  # fmt: skip


def test_a_gathered_row_is_read_outside_the_loop_that_reduces():
    """Clamped indices differ from lane to lane, but not along the reduced axis."""
    check(Graph("(float[1,1,c] x) => (int64[d,e] i, float[d,e] m) <int64[6] p = {1, 1, 0, 1, 0, 1}, int64[1] k = {0}> "
                '{ t = Pad<mode = "edge">(x, p)  i = ArgMin<axis = 0, keepdims = 0>(t)  m = ReduceMax<keepdims = 0>(t, k) }',
                [floats(1, 1, 9)]))  # fmt: skip


def test_sums_down_long_columns_do_not_gather_the_roundings_of_all_rows():
    """One chain of additions is off by 6e-4 here. Infinities stay what they are."""
    x = np.full((65536, 40), 0.1, np.float32)
    exact = np.full(40, 65536 * np.float64(np.float32(0.1)), np.float64)
    x[7, 3] = exact[3] = np.inf
    check(
        Graph("(float[a,b] x) => (float[b] y) <int64[1] k = {0}> { y = ReduceSum<keepdims = 0>(x, k) }", [x], [exact.astype(np.float32)]),
        rtol=1e-4,
    )  # fmt: skip


def test_a_scalar_may_come_as_a_vector_of_one():
    """Stock does not check the shape of an input that is declared as a scalar."""
    x, one = floats(3, 4), floats(1)
    check(
        Graph("(float[a,b] x, float s) => (float[a,b] y) { t = Exp(s)  u = Mul(x, t)  y = Tanh(u) }", [x, one]),
        Graph("(float[a,b] x, int64 s) => (float[a,b] y) { t = Cast<to = 1>(s)  y = Sub(x, t) }", [x, whole(1)]),
    )  # fmt: skip


def test_a_scalar_that_gives_a_result_its_shape_stays_one():
    text = "(float[a,b] x, int64 s) => (float[b] y) { t = Gather<axis = 0>(x, s)  y = Tanh(t) }"
    x = floats(3, 4)
    with smelt.compile(Graph(text, []).model(OPSET), force=True, levels="v2", verify=False) as compiled:
        np.testing.assert_allclose(compiled.run({"x": x, "s": np.array(1)})[0], np.tanh(x[1]), rtol=1e-6)
        with pytest.raises(Exception, match="rank 1"):
            compiled.run({"x": x, "s": np.array([1])})


def test_a_region_may_read_what_another_made_inside():
    """A small tensor of integers is followed through a Reshape to where it was made, in a region before."""
    check(Graph("(float[6] x, float[6,4] a, int8[4,3] b) => (float[6,3] y) <int64[2] s = {6, 1}> "
                "{ f = Floor(x)  q = Cast<to = 6>(f)  r = Reshape(q, s)  h = Cast<to = 1>(r)  g = Add(a, h)  i = Cast<to = 3>(g) "
                " m = MatMulInteger(i, b)  t = Add(m, r)  y = Cast<to = 1>(t) }",
                [floats(6) * 9, floats(6, 4), whole(4, 3, dtype=np.int8)], fallback_nodes=True))  # fmt: skip
