"""Images whose channels are reshaped into groups: computed in NHWC, as they lie."""

from __future__ import annotations

from region_check import Graph, check, floats, traits

from smelt.codegen.c.traits import STRIDED_LOADS, STRIDED_STORES

HEAD = "(float[n, 9, 7, 16] x, float[n, 2, 8, 1, 1] g) => (float[a, b, c, d] y)"
GROUPS = """
  c = Transpose <perm = [0, 3, 1, 2]> (x) sizes = Shape (c)
  five = Constant <value_ints = [0, 2, 8, 9, 7]> () r = Reshape (c, five)
  one = Constant <value_ints = [1]> () two = Constant <value_ints = [2]> ()
"""
WEIGHTED = "m = Mul (r, g) t = ReduceSum <keepdims = 0> (m, one)"
POOLED = f"""{WEIGHTED} p = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (t)
  y = Transpose <perm = [0, 2, 3, 1]> (p)"""


def graph(body: str) -> Graph:
    return Graph(f"{HEAD} {{ {GROUPS} {body} }}", [floats(2, 9, 7, 16, seed=1), floats(2, 2, 8, 1, 1, seed=3)])


def test_groups_are_weighed_summed_joined_and_shuffled():
    back = "q = Reshape (m, sizes) y = Relu (q)"
    check(
        graph(POOLED),
        graph(f"{WEIGHTED} y = Relu (t)"),
        graph(f"m = Mul (r, g) {back}"),
        graph(f"z = Transpose <perm = [0, 2, 1, 3, 4]> (r) m = Identity (z) {back}"),
        graph(f"k = ReduceMean <keepdims = 1> (r, two) m = Sub (r, k) {back}"),
        graph("k = Concat <axis = 1> (r, r) m = ReduceMax <keepdims = 0> (k, two) y = Neg (m)"),
        graph("k = Concat <axis = 2> (r, r) m = ReduceMax <keepdims = 0> (k, one) y = Neg (m)"),
    )


def test_a_weighted_sum_of_groups_walks_the_image_along_its_channels():
    """No lanes that lie apart from each other in memory, as every second element of a row does."""
    assert not traits(graph(POOLED).model(21)) & {STRIDED_LOADS, STRIDED_STORES}
    halves = "(float[n, 32] x) => (float[n, 16] y) { zero = Constant <value_ints = [0]> () "
    halves += "end = Constant <value_ints = [32]> () one = Constant <value_ints = [1]> () "
    halves += "two = Constant <value_ints = [2]> () "
    every_second = Graph(f"{halves}s = Slice (x, zero, end, one, two) y = Exp (s) }}", [floats(3, 32)])
    assert traits(every_second.model(21)) == {STRIDED_LOADS}
