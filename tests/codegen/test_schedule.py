"""Which tensors share a loop nest, what kind of work a cluster is, and the loops it becomes: no text, no compiler."""

from __future__ import annotations

from smelt.codegen.cluster import (
    BackToBack,
    BatchedGemm,
    Cluster,
    Fill,
    Loops,
    Pack,
    RunningTotal,
    Schedule,
    SegmentCopy,
    UnpackedGemm,
)
from smelt.codegen.loops import build
from smelt.codegen.schedule import schedule
from smelt.ir.kernel import Buffer, Builder, Ix, Tensor, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import sym

N, S = sym("n"), sym("s")
K = Builder()


def given(*shape: Ix | int) -> Tensor:
    return K.stored(Buffer("x", "f32", tuple(ix(size) for size in shape)))


def planned(*outputs: Tensor) -> Schedule:
    return schedule(
        [(tensor, Buffer(f"out{place}", tensor.dtype, tensor.shape)) for place, tensor in enumerate(outputs)]
    )


def work_of(plan: Schedule) -> list[type]:
    return [type(step) if isinstance(step, BackToBack) else type(step.work) for step in plan.steps]


def only(plan: Schedule) -> Cluster:
    (cluster,) = plan.clusters
    return cluster


def exp(x: Tensor) -> Tensor:
    return K.map(lambda a: E.op("exp", a), x)


def softmax(x: Tensor) -> Tensor:
    powers = K.map(lambda a, m: E.op("exp", E.op("sub", a, m)), x, K.reduce("max", x, [x.rank - 1]))
    return K.map(lambda e, t: E.op("div", e, t), powers, K.reduce("sum", powers, [x.rank - 1]))


def add(a: Tensor, b: Tensor) -> Tensor:
    return K.map(lambda x, y: E.op("add", x, y), a, b)


# clusters


def test_a_softmax_is_one_loop_nest_with_two_reductions() -> None:
    cluster = only(planned(softmax(given(N, 8))))
    assert isinstance(cluster.work, Loops)
    assert [r.kind for r in cluster.reductions.values()] == ["max", "sum"]
    assert len(cluster.stores) == 1 and [v.extent for v in cluster.reduced] == [ix(8)]


def test_a_reduction_over_other_rows_starts_a_loop_nest() -> None:
    down = K.reduce("sum", softmax(given(N, 8)), [0])
    assert work_of(planned(down)) == [Loops, Loops]


def test_what_nobody_reads_is_not_computed() -> None:
    x = given(N, 8)
    softmax(x)
    assert len(planned(exp(x)).clusters) == 1


def test_a_shared_matrix_is_read_unpacked_and_its_epilogue_joins() -> None:
    made = K.contraction(given(N, 16), given(16, 24))
    cluster = only(planned(add(made, given(24))))
    assert isinstance(cluster.work, UnpackedGemm) and cluster.products == (made,)
    assert len(cluster.members) == 2


def test_matrices_of_batches_are_packed_before_their_product() -> None:
    plan = planned(K.contraction(given(N, S, 16), given(N, 16, 24)))
    assert work_of(plan) == [Pack, BatchedGemm]
    pack, gemm = plan.clusters
    assert isinstance(pack.work, Pack) and isinstance(gemm.work, BatchedGemm)
    assert gemm.work.right.buffer is pack.work.target and gemm.work.unpacked is not None


def test_attention_is_two_packs_and_one_step_of_two_products() -> None:
    scores = K.contraction(given(N, S, 16), given(N, 16, S))
    plan = planned(K.contraction(softmax(scores), given(N, S, 16)))
    assert work_of(plan) == [Pack, Pack, BackToBack]
    step = plan.steps[-1]
    assert isinstance(step, BackToBack) and step.consumer.producer is step.producer
    assert step.producer.stores[-1].buffer is step.kept[1]


def test_weights_that_are_an_output_too_are_stored_beside_the_block() -> None:
    weights = softmax(K.contraction(given(N, S, 16), given(N, 16, S)))
    plan = planned(weights, K.contraction(weights, given(N, S, 16)))
    step = plan.steps[-1]
    assert isinstance(step, BackToBack)
    assert {store.buffer.name for store in step.producer.stores} == {"out0", step.kept[1].name}


def test_padding_is_a_fill_then_a_copy_and_a_cumulative_sum_a_running_total() -> None:
    padded = planned(K.pad(given(N, 8), [0, 1], [0, 1], 0.0))
    assert work_of(padded) == [Fill, Loops]
    assert work_of(planned(K.scan("sum", given(N, 8), 1))) == [RunningTotal]


def cached(other_reader: bool) -> Schedule:
    """Attention over keys and values of a past and of the call."""
    past, new = (given(N, 4, size, 16) for size in (S, 1))
    keys, values = (K.concat([past, new], 2) for _ in range(2))
    scores = K.contraction(given(N, 4, 1, 16), K.transpose(keys, [0, 1, 3, 2]))
    out = K.contraction(softmax(scores), values)
    return planned(out, keys, values, *([K.contraction(keys, given(16, 24))] if other_reader else []))


def test_the_copies_of_a_cache_step_back_where_a_gemv_reads_it() -> None:
    assert work_of(cached(other_reader=False)).count(SegmentCopy) == 4


def test_the_copies_of_a_cache_stay_where_another_product_reads_it() -> None:
    """That one runs before the GEMV would have copied anything."""
    assert SegmentCopy not in work_of(cached(other_reader=True))


# loops


def test_contiguous_axes_are_walked_as_one() -> None:
    nest = build(only(planned(exp(given(N, 3, 8)))))
    assert [v.extent for v in nest.outer] == [N * 24] and nest.vector is nest.outer[0]


def test_a_transposed_axis_stays_a_loop_of_its_own() -> None:
    nest = build(only(planned(exp(K.transpose(given(N, 3, 8), [0, 2, 1])))))
    assert [v.extent for v in nest.outer] == [N, ix(8), ix(3)]


def test_axes_of_one_element_disappear() -> None:
    nest = build(only(planned(softmax(given(1, N, 1, 8)))))
    assert ([v.extent for v in nest.outer], [v.extent for v in nest.inner]) == ([N], [ix(8)])
    assert nest.vector is nest.inner[0]


def test_divisions_of_a_loop_variable_become_two_loops() -> None:
    heads = K.transpose(K.reshape(given(N, 48), [N, 4, 12]), [1, 0, 2])
    nest = build(only(planned(exp(K.reshape(heads, [ix(4), N * 12])))))
    (store,) = nest.stores
    loads = [e.kind for e in E.walk(store.value) if isinstance(e.kind, E.Load)]
    assert [v.extent for v in nest.outer] == [ix(4), N, ix(12)]
    assert all("floordiv" not in i.key and "mod" not in i.key for i in (store.offset, *(load.offset for load in loads)))


def test_a_running_total_is_vectorized_across_its_axis_alone() -> None:
    along = build(only(planned(K.scan("sum", given(N, 8), 1))))
    across = build(only(planned(K.scan("sum", given(N, 8), 0))))
    assert along.vector is None and along.scan is not None
    assert across.vector is not None and across.vector.extent == ix(8)
