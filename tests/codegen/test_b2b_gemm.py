"""Products that run in one task: scores, softmax and the product with the values never leave the task's block."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from region_check import Graph, check

import smelt
from smelt.codegen.c.launch import launch_of
from smelt.codegen.c.traits import KV_SEGMENTS
from smelt.ir.records import KernelInfo

RNG = np.random.default_rng(7)
HEADS = "float[b,h,s,d] q, float[b,h,t,d] k, float[b,h,t,e] v"
SCORES = "kt = Transpose<perm=[0,1,3,2]>(k)\n raw = MatMul(q, kt)\n"
NEGATIVE = -np.inf


def heads(batch: int, count: int, rows: int, keys: int, depth: int, width: int) -> list[np.ndarray]:
    shapes = [(batch, count, rows, depth), (batch, count, keys, depth), (batch, count, keys, width)]
    return [(RNG.standard_normal(shape) / np.sqrt(shape[2])).astype(np.float32) for shape in shapes]


def mask(batch: int, rows: int, keys: int) -> np.ndarray:
    made = np.where(RNG.random((batch, 1, rows, keys)) < 0.3, NEGATIVE, 0).astype(np.float32)
    made[0, 0, 0] = NEGATIVE  # a row that may look at nothing is NaN, as in the reference
    return made


def kernels(text: str, opset: int = 21) -> list[KernelInfo]:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> g {text}')
    with smelt.compile(model.SerializeToString(), force=True, levels="v2", verify=False) as compiled:
        assert compiled.result.generated is not None
        return [k for code in compiled.result.generated.codes for k in code.info]


def kernel_kinds(text: str, opset: int = 21) -> list[str]:
    return [k.kind for k in kernels(text, opset)]


def chained(body: str, ends: str = "float[b,h,s,e] y", more: str = "") -> str:
    return f"({HEADS}{more}) => ({ends}) {{ {SCORES} {body} }}"


def test_attention_is_two_packings_and_one_kernel():
    assert kernel_kinds(chained("p = Softmax(raw)\n y = MatMul(p, v)")) == ["loops", "loops", "gemm"]


def test_a_batch_of_one_chains_as_well():
    text = "(float[1,3,s,8] q, float[1,3,s,8] k, float[1,3,s,8] v) => (float[1,3,s,8] y) { y = Attention<%s>(q, k, v) }"
    assert kernel_kinds(text % "is_causal = 1", 23) == ["loops", "loops", "gemm"]
    single = "(float[1,1,s,8] q, float[1,1,t,8] k, float[1,1,t,8] v) => (float[1,1,s,8] y) { y = Attention(q, k, v) }"
    assert kernel_kinds(single, 23) == ["loops", "loops", "gemm"]


def test_heads_are_split_and_merged_without_a_copy():
    text = "(float[b,s,24] q, float[b,t,24] k, float[b,t,24] v) => (float[b,s,24] y) { y = Attention<%s>(q, k, v) }"
    assert kernel_kinds(text % "q_num_heads = 3, kv_num_heads = 3", 23) == ["loops", "loops", "gemm"]


def test_groups_of_heads_share_what_is_packed():
    text = "(float[b,6,s,4] q, float[b,2,t,4] k, float[b,2,t,4] v) => (float[b,6,s,4] y) { y = Attention(q, k, v) }"
    keys, values, _ = kernels(text, 23)
    assert keys.summary.startswith("2*") and values.summary.startswith("2*")


@pytest.mark.parametrize(
    "sizes",
    [(2, 3, 5, 7, 4, 6), (1, 2, 33, 40, 16, 16), (1, 5, 1, 19, 8, 24), (2, 1, 17, 1, 3, 1), (1, 1, 70, 600, 8, 8)],
)
def test_chained_products_agree_with_stock(sizes):
    q, k, v = heads(*sizes)
    batch, _, rows, keys, _, _ = sizes
    bias = mask(batch, rows, keys)
    masked = "m = Add(raw, bias)\n p = Softmax(m)\n"
    check(
        Graph(chained("p = Softmax(raw)\n y = MatMul(p, v)"), [q, k, v]),
        Graph(chained(masked + "y = MatMul(p, v)", more=", float[b,1,s,t] bias"), [q, k, v, bias]),
        Graph(chained("y = MatMul(raw, v)"), [q, k, v]),
        Graph(chained("p = Relu(raw)\n y = MatMul(p, v)"), [q, k, v]),
        rtol=2e-5,
        atol=2e-5,
    )


def test_rows_that_are_wanted_elsewhere_are_stored_too():
    q, k, v = heads(2, 2, 9, 11, 4, 6)
    ends = "float[b,h,s,e] y, float[b,h,s,t] p"
    turned = (
        "<int64[1] start = {-1}, int64[1] stop = {-4611686018427387904}, int64[1] axis = {2}, int64[1] step = {-1}>"
    )
    summed = "p = Softmax(raw)\n y0 = MatMul(p, v)\n m = ReduceSum(p, axis)\n"
    check(
        Graph(chained("p = Softmax(raw)\n y = MatMul(p, v)", ends), [q, k, v]),
        Graph(chained(summed + "y = Add(y0, m)").replace(") {", ") <int64[1] axis = {3}> {", 1), [q, k, v]),
        # what is added to a row was made in the first product's epilogue by another task
        Graph(
            chained(summed + "r = Slice(m, start, stop, axis, step)\n y = Add(y0, r)")
            .replace(") {", f") {turned} {{", 1).replace("ReduceSum(p, axis)", "ReduceMax<keepdims = 1>(p, last)")
            .replace("step = {-1}>", "step = {-1}, int64[1] last = {3}>"), [q, k, v]),
        rtol=2e-5,
        atol=2e-5,
    )  # fmt: skip


def test_values_that_a_later_pass_reads_from_the_product_again():
    """The product itself is an output beside what replaces it."""
    q, k, v = heads(1, 3, 6, 21, 5, 7)
    ends = "float[b,h,s,e] y, float[b,h,s,t] z"
    check(
        Graph(chained("p = Softmax(raw)\n z = Add(raw, p)\n y = MatMul(p, v)", ends), [q, k, v]),
        Graph(chained("r = Relu(raw)\n p = Softmax(r)\n z = Mul(raw, p)\n y = MatMul(r, v)", ends), [q, k, v]),
        Graph(
            chained("r = Relu(raw)\n n = ReduceMax<keepdims=1>(raw)\n z = Sub(raw, n)\n y = MatMul(r, v)", ends),
            [q, k, v],
        ),
        rtol=2e-5,
        atol=2e-5,
    )


def test_products_over_merged_batches_chain_as_well():
    """Batch and heads as one axis for the second product, as older exporters write it."""
    q, k, v = heads(2, 3, 9, 11, 4, 6)
    text = (
        "(float[2,3,9,4] q, float[2,3,11,4] k, float[6,11,6] v) => (float[6,9,6] y) <int64[3] to = {6, 9, 11}> {"
        f"{SCORES} p = Softmax(raw)\n f = Reshape(p, to)\n y = MatMul(f, v) }}"
    )
    assert kernel_kinds(text) == ["loops", "loops", "gemm"]
    check(Graph(text, [q, k, v.reshape(6, 11, 6)]), rtol=2e-5, atol=2e-5)


def test_result_does_not_depend_on_threads():
    q, k, v = heads(1, 3, 200, 150, 16, 16)
    model = Graph(chained("p = Softmax(raw)\n y = MatMul(p, v)"), [q, k, v]).model(21)
    found = []
    for threads in (1, 4):
        with smelt.compile(
            model.SerializeToString(), force=True, levels="v2", verify=False, threads=threads
        ) as compiled:
            found.append(compiled.run({"q": q, "k": k, "v": v})[0])
    assert np.array_equal(found[0], found[1])


BUFFERS = [
    (1, 5, 0, [5]),
    (2, 1, 8, [9, 4]),
    (2, 1, 12, [9, 4]),
    (1, 7, 6, [13]),
    (2, 1, 90, [21, 4]),
    (1, 3, 90, [36]),
]


@pytest.mark.parametrize("call", BUFFERS, ids=str)
def test_grouped_queries_with_a_cache_of_any_length(call):
    batch, rows, past, keys = call
    text = """(float[b,s,64] q, float[b,s,32] k, float[b,s,32] v, float[b,2,p,16] old_k, float[b,2,p,16] old_v,
               int32[b] last, int32[1] total, float[64,8] cos, float[64,8] sin)
               => (float[b,s,64] y, float[b,2,n,16] new_k, float[b,2,n,16] new_v) { y, new_k, new_v =
               com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2, do_rotary=1>(
                 q, k, v, old_k, old_v, last, total, cos, sin) }"""
    shapes = [(batch, rows, 64), (batch, rows, 32), (batch, rows, 32), (batch, 2, past, 16), (batch, 2, past, 16)]
    lengths = [np.array(keys, np.int32) - 1, np.array([max(keys)], np.int32)]
    fed = [RNG.standard_normal(s).astype(np.float32) for s in shapes]
    tables = [RNG.standard_normal((64, 8)).astype(np.float32) for _ in range(2)]
    check(Graph(text, [*fed, *lengths, *tables]), atol=2e-6)


CACHED = """(float[b,6,s,16] q, float[b,2,s,16] k, float[b,2,s,8] v, float[b,2,p,16] old_k, float[b,2,p,8] old_v)
            => (float[b,6,s,8] y, float[b,2,n,16] new_k, float[b,2,n,8] new_v)
            { y, new_k, new_v = Attention<is_causal=1>(q, k, v, , old_k, old_v) }"""


@pytest.mark.parametrize("sizes", [(1, 1, 700), (2, 3, 5), (1, 4, 0), (2, 5, 9), (1, 1, 1)], ids=str)
def test_a_cache_is_read_where_it_lies_and_copied_on_the_way(sizes):
    batch, rows, past = sizes
    shapes = [
        (batch, 6, rows, 16),
        (batch, 2, rows, 16),
        (batch, 2, rows, 8),
        (batch, 2, past, 16),
        (batch, 2, past, 8),
    ]
    check(Graph(CACHED, [RNG.standard_normal(s).astype(np.float32) for s in shapes]), opset=23, atol=2e-6)


def test_heads_that_share_keys_are_one_task_and_who_copies_for_many_rows_steps_back():
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 23]> g {CACHED}')
    with smelt.compile(model.SerializeToString(), force=True, levels="v2", verify=False) as compiled:
        assert compiled.result.generated is not None
        (code,) = compiled.result.generated.codes
    (attention,) = [kernel for kernel in code.kernels if kernel.product is not None]
    assert attention.product.group.const == 3 and KV_SEGMENTS in attention.traits
    assert launch_of(attention).launcher == "smelt_launch_b2b_online_softmax"


def test_a_cache_that_a_product_with_a_run_time_matrix_reads_is_assembled_first():
    text = """(float[b,2,s,16] q, float[b,2,s,16] k, float[b,2,s,8] v, float[b,2,p,16] old_k, float[b,2,p,8] old_v,
               float[16,24] w) => (float[b,2,n,24] z, float[b,2,s,8] y) {
        keys = Concat<axis=2>(old_k, k) values = Concat<axis=2>(old_v, v) z = MatMul(keys, w)
        t = Transpose<perm=[0,1,3,2]>(keys) scores = MatMul(q, t) weights = Softmax(scores)
        y = MatMul(weights, values) }"""
    shapes = [(2, 2, 1, 16), (2, 2, 1, 16), (2, 2, 1, 8), (2, 2, 40, 16), (2, 2, 40, 8), (16, 24)]
    check(Graph(text, [RNG.standard_normal(s).astype(np.float32) for s in shapes]), rtol=1e-5, atol=1e-5)


def test_a_cache_that_is_read_elsewhere_is_assembled_first():
    text = """(float[b,2,s,16] q, float[b,2,s,16] k, float[b,2,s,8] v, float[b,2,p,16] old_k, float[b,2,p,8] old_v)
              => (float[b,2,s,8] y, float[b,2,n,16] twice) { all, new_k, new_v = Attention(q, k, v, , old_k, old_v)
                 twice = Add(new_k, new_k) y = Relu(all) }"""
    shapes = [(1, 2, 1, 16), (1, 2, 1, 16), (1, 2, 1, 8), (1, 2, 9, 16), (1, 2, 9, 8)]
    check(Graph(text, [RNG.standard_normal(s).astype(np.float32) for s in shapes]), opset=23, atol=2e-6)
