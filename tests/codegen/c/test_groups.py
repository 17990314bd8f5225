"""Kernels that run together touch nothing that another one writes; needs are kept whatever moves."""

from types import SimpleNamespace

from smelt.codegen.c.groups import MOST_TOGETHER, group_kernels


def kernel(reads, writes, *, product=False):
    """`reads` and `writes` are letters, each a buffer."""
    buffers = [SimpleNamespace(uid=ord(letter)) for letter in reads + writes]
    written = frozenset(ord(letter) for letter in writes)
    return SimpleNamespace(buffers=buffers, written=written, product=object() if product else None)


def test_independent_neighbours_share_a_barrier():
    assert group_kernels([kernel("a", "b"), kernel("a", "c"), kernel("bc", "d")]) == [[0, 1], [2]]


def test_a_product_moves_to_the_one_that_has_its_operand():
    scores = [kernel("xq", "a", product=True), kernel("a", "b"), kernel("b", "c"), kernel("xv", "d", product=True)]
    assert group_kernels(scores) == [[0, 3], [1], [2]]


def test_no_kernel_runs_with_one_that_overwrites_what_it_reads():
    assert group_kernels([kernel("a", "b"), kernel("c", "a")]) == [[0], [1]]
    assert group_kernels([kernel("a", "c"), kernel("b", "c")]) == [[0], [1]]


def test_unknown_writes_count_as_all():
    one, other = kernel("ab", ""), kernel("b", "c")
    one.written = None
    assert group_kernels([one, other]) == [[0], [1]]


def test_groups_have_a_limit():
    groups = group_kernels([kernel("a", chr(ord("b") + i)) for i in range(20)])
    assert max(map(len, groups)) == MOST_TOGETHER
    assert sorted(p for g in groups for p in g) == list(range(20))
