"""Matrix products of run-time operands: batches, broadcasting, transposes read in place, epilogues, empty sizes."""
# ruff: noqa: E501  a graph is written on one line where that reads best

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from region_check import Graph, check, floats

import smelt

SIZES = [
    (2, 5, 7, 9),
    (1, 1, 3, 33),
    (5, 40, 64, 128),
    (3, 0, 4, 5),
    (2, 4, 0, 5),
    (13, 30, 65, 17),
    (2, 2, 33, 70),
    (1, 3, 16, 37),
    (3, 4, 70, 66),
]


def product_graphs(batch: int, rows: int, depth: int, columns: int) -> list[Graph]:
    a, b = floats(batch, rows, depth), floats(batch, depth, columns)
    turned, shared = np.ascontiguousarray(b.transpose(0, 2, 1)), b[:1]
    scores = a @ b
    top = scores - scores.max(-1, keepdims=True, initial=-np.inf)
    soft = np.exp(top) / np.exp(top).sum(-1, keepdims=True)
    return [
        Graph("(float[B,M,K] a, float[B,K,N] b) => (float[B,M,N] c) { c = MatMul(a, b) }", [a, b], [scores]),
        Graph("(float[B,M,K] a, float[B,N,K] b) => (float[B,M,N] c) { t = Transpose<perm = [0, 2, 1]>(b)  s = MatMul(a, t)  c = Softmax<axis = -1>(s) }", [a, turned], [soft]),
        Graph("(float[B,K,M] a, float[1,K,N] b) => (float[B,M,N] c) { t = Transpose<perm = [0, 2, 1]>(a)  c = MatMul(t, b) }", [np.ascontiguousarray(a.transpose(0, 2, 1)), shared], [a @ shared]),
        Graph("(float[M,K] a, float[B,3,K,N] b) => (float[B,3,M,N] c) { s = MatMul(a, b)  c = Relu(s) }", [a[0], np.stack([b] * 3, 1)], [np.maximum(a[0] @ np.stack([b] * 3, 1), 0)]),
        Graph("(float[B,M,K] a, float[B,K,N] b) => (float[B,N,M] c) { e = Tanh(a)  s = MatMul(e, b)  c = Transpose<perm = [0, 2, 1]>(s) }", [a, b], [(np.tanh(a) @ b).transpose(0, 2, 1)]),
    ]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
def test_products_of_run_time_operands(sizes):
    check(*product_graphs(*sizes), rtol=1e-5, atol=1e-5)


def shared_graphs(batch: int, rows: int, depth: int, columns: int) -> list[Graph]:
    """All rows share the right operand, in the forms that a linear layer and its gradients have."""
    x, w, y = floats(batch * rows, depth), floats(columns, depth), floats(batch * rows, columns)
    cube, bias = x.reshape(batch, rows, depth), floats(columns)
    wx, ww, wy, wcube = (a.astype(np.float64) for a in (x, w, y, cube))  # what is expected has no rounding of its own
    scores = wx @ ww.T + bias
    top = scores - scores.max(-1, keepdims=True, initial=-np.inf)
    soft = np.exp(top) / np.exp(top).sum(-1, keepdims=True)
    graphs = [
        Graph("(float[M,K] x, float[N,K] w) => (float[M,N] c) { c = Gemm<transB = 1>(x, w) }", [x, w], [wx @ ww.T]),
        Graph("(float[M,N] y, float[N,K] w) => (float[M,K] c) { c = Gemm(y, w) }", [y, w], [wy @ ww]),
        Graph("(float[M,N] y, float[M,K] x) => (float[N,K] c) { c = Gemm<transA = 1>(y, x) }", [y, x], [wy.T @ wx]),
        Graph("(float[M,N] y, float[M,K] x) => (float[N,K] c) { s = Gemm<transA = 1>(y, x)  c = Tanh(s) }", [y, x], [np.tanh(wy.T @ wx)]),
        Graph("(float[M,K] x, float[N,K] w, float[N] b) => (float[M,N] c) { s = Gemm<transB = 1>(x, w, b)  c = Softmax<axis = -1>(s) }", [x, w, bias], [soft]),
        Graph("(float[B,M,K] x, float[N,K] w) => (float[B,M,N] c) { t = Transpose<perm = [1, 0]>(w)  s = MatMul(x, t)  c = Relu(s) }", [cube, w], [np.maximum(wcube @ ww.T, 0)]),
        Graph("(float[M,K] x, float[N,K] w) => (float[M,N] c, float[N] r) { c = Gemm<transB = 1>(x, w)  a = Constant<value_ints = [0]>()  r = ReduceSum<keepdims = 0>(c, a) }", [x, w], [wx @ ww.T, (wx @ ww.T).sum(0)]),
    ]  # fmt: skip
    return [replace(g, expected=[e.astype(np.float32) for e in g.expected or ()]) for g in graphs]


@pytest.mark.parametrize("sizes", SIZES)
def test_products_whose_rows_share_a_run_time_operand(sizes):
    graphs = shared_graphs(*sizes)
    sums = (graphs[-1].expected or ())[-1]  # they cancel: the contract measures by their size
    size = float(np.sqrt(np.mean(np.square(sums, dtype=np.float64))))
    check(*graphs, rtol=1e-5, atol=max(1e-5, 1e-6 * size))


def test_a_shared_run_time_operand_is_laid_out_by_the_tasks_that_read_it():
    text = (
        "(float[M,96] x, float[80,96] w, float[80] b) => (float[M,80] y) { s = Gemm<transB = 1>(x, w, b)  y = Relu(s) }"
    )
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {text}')
    with smelt.compile(model.SerializeToString(), force=True, levels="v2", verify=False) as compiled:
        assert [k.kind for code in compiled.result.generated.codes for k in code.info] == ["gemm"]


def test_what_follows_a_product_of_a_batch_of_one_runs_in_its_epilogue():
    text = (
        "(float[1,s,2] x) => (float[1,s,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}> { a = MatMul(x, w)  y = Softmax(a) }"
    )
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {text}')
    with smelt.compile(model.SerializeToString(), force=True, levels="v2", verify=False) as compiled:
        assert [k.kind for code in compiled.result.generated.codes for k in code.info] == ["gemm"]
    check(Graph(text, [floats(1, 5, 2)]), rtol=1e-5, atol=1e-5)


def test_reductions_over_all_rows_of_a_product():
    a, b = floats(2, 5, 7), floats(2, 7, 9)
    whole = np.max(a @ b).reshape(1, 1, 1)
    check(
        Graph("(float[B,M,K] a, float[B,K,N] b) => (float[1,1,1] c) { s = MatMul(a, b)  c = ReduceMax<keepdims = 1>(s) }", [a, b], [whole]),
        rtol=1e-5,
    )  # fmt: skip


def test_attention_from_projections_to_heads_is_one_region():
    batch, length, heads, width = 2, 11, 3, 8
    q, k, v = (floats(batch, length, heads * width) for _ in range(3))

    def split(x):
        return x.reshape(batch, length, heads, width).transpose(0, 2, 1, 3)

    scores = split(q) @ split(k).transpose(0, 1, 3, 2) / np.sqrt(np.float32(width))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = (weights @ split(v)).transpose(0, 2, 1, 3).reshape(batch, length, heads * width)
    text = """(float[B,S,24] q, float[B,S,24] k, float[B,S,24] v) => (float[B,S,24] y)
        <int64[4] shape = {0, 0, 3, 8}, int64[3] back = {0, 0, 24}, float scale = {0.35355338}> {
        q4 = Reshape(q, shape)  k4 = Reshape(k, shape)  v4 = Reshape(v, shape)
        qh = Transpose<perm = [0, 2, 1, 3]>(q4)  kh = Transpose<perm = [0, 2, 3, 1]>(k4)  vh = Transpose<perm = [0, 2,
        1, 3]>(v4) s = MatMul(qh, kh)  t = Mul(s, scale)  p = Softmax<axis = -1>(t)  c = MatMul(p, vh) ct =
        Transpose<perm = [0, 2, 1, 3]>(c)  y = Reshape(ct, back) }"""
    check(Graph(text, [q, k, v], [expected.astype(np.float32)]), rtol=1e-5, atol=1e-5)
