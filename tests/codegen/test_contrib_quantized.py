"""Generated C of operators on bytes, against stock over all pairs of bytes; QGemm against numpy in int64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import smelt

MICROSOFT = "com.microsoft"
OPERATORS = (
    ("QLinearAdd", 2, {}), ("QLinearMul", 2, {}), ("QLinearSigmoid", 1, {}), ("QLinearLeakyRelu", 1, {"alpha": 0.2}),
    ("QLinearSoftmax", 1, {"opset": 13}), ("QLinearAveragePool", 1, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("QLinearGlobalAveragePool", 1, {"channels_last": 0}), ("QLinearConcat", 0, {"axis": 1}),
)  # fmt: skip


def _model(dtype: type, shape: list[object], zero: int) -> bytes:
    """Every operator on inputs a and b; scales with exact quotients."""
    kind, info = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), np.iinfo(dtype)
    constants = [
        numpy_helper.from_array(value, name)
        for name, value in (
            ("s", np.float32(0.5)), ("t", np.float32(0.25)), ("u", np.float32(1 / 64)), ("z", dtype(info.min + zero)),
            ("least", dtype(info.min)),
        )
    ]  # fmt: skip
    inputs = {1: ["a", "t", "z"], 2: ["a", "s", "z", "b", "t", "z"]}
    nodes = [
        helper.make_node(op, [*inputs[count], "s", "z"], [op], domain=MICROSOFT, **attributes)
        for op, count, attributes in OPERATORS
        if count and op not in ("QLinearSigmoid", "QLinearSoftmax")
    ]
    nodes += [
        helper.make_node(op, [*inputs[1], "u", "least"], [op], domain=MICROSOFT, **attributes)
        for op, _, attributes in OPERATORS
        if op in ("QLinearSigmoid", "QLinearSoftmax")
    ]
    three = ["s", "z", "a", "t", "z", "b", "s", "z"]
    nodes.append(helper.make_node("QLinearConcat", three, ["QLinearConcat"], domain=MICROSOFT, axis=1))
    graph = helper.make_graph(
        nodes, "bytes", [helper.make_tensor_value_info(name, kind, shape) for name in "ab"],
        [helper.make_tensor_value_info(op, kind, None) for op, _, _ in OPERATORS], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_generated_code_gives_stocks_bytes(dtype: type) -> None:
    info = np.iinfo(dtype)
    q = np.arange(info.min, info.max + 1).astype(dtype)
    feeds = {"a": np.repeat(q, 256).reshape(4, 16, 32, 32), "b": np.tile(q, 256).reshape(4, 16, 32, 32)}
    data = _model(dtype, ["n", 16, 32, 32], 101)
    stock = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    with smelt.compile(data, force=True, verify=False, threads=1) as compiled:
        assert not compiled.result.plan.fallbacks
        for (op, _, _), got, wanted in zip(OPERATORS, compiled.run(feeds), stock, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=op)


@dataclass(frozen=True)
class Gemm:
    """One QGemm with scales that make ties: of rows `a`, and `b` in its own order."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray | None = None
    several: bool = False
    bytes_out: bool = True
    trans_a: int = 0
    trans_b: int = 0
    alpha: float = 1.0

    @property
    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Scales and zero points of B."""
        columns = self.b.shape[0 if self.trans_b else 1]
        each = np.arange(columns)
        least = np.iinfo(self.b.dtype).min
        scales, zeros = 2.0 ** -(each % 3), least + 100 + each % 50
        size = columns if self.several else ()
        return np.resize(scales, size).astype(np.float32), np.resize(zeros, size).astype(self.b.dtype)

    def zero(self, above_least: int) -> np.ndarray:
        return np.array(np.iinfo(self.a.dtype).min + above_least, self.a.dtype)

    def expected(self) -> np.ndarray:
        scale, zero = self.steps
        a = (self.a.T if self.trans_a else self.a).astype(np.int64) - int(self.zero(3))
        b = (self.b.T if self.trans_b else self.b).astype(np.int64) - zero.astype(np.int64)
        sums = a @ b + (0 if self.c is None else self.c)
        result = sums * (np.float32(self.alpha) * np.float64(0.25) * scale)
        if not self.bytes_out:
            return result.astype(np.float32)
        info = np.iinfo(self.a.dtype)
        return np.clip(np.rint(result / 512) + int(self.zero(101)), info.min, info.max).astype(self.a.dtype)

    def model(self, constant: bool) -> bytes:
        scale, zero = self.steps
        given = {
            "s": np.float32(0.25), "z": self.zero(3), "bs": scale, "bz": zero, "ys": np.float32(512),
            "yz": self.zero(101),
            **({} if self.c is None else {"c": self.c}), **({"b": self.b} if constant else {}),
        }  # fmt: skip
        names = [
            "a",
            "s",
            "z",
            "b",
            "bs",
            "bz",
            "" if self.c is None else "c",
            *(["ys", "yz"] if self.bytes_out else []),
        ]
        attributes = {"transA": self.trans_a, "transB": self.trans_b, "alpha": self.alpha}
        graph = helper.make_graph(
            [helper.make_node("QGemm", names, ["y"], domain=MICROSOFT, **attributes)], "gemm",
            [_of("a", self.a, ["p", "q"]), *([] if constant else [_of("b", self.b, list(self.b.shape))])],
            [_of("y", self.a if self.bytes_out else scale, None)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def check(self, constant: bool, function: str) -> None:
        feeds = {"a": self.a} | ({} if constant else {"b": self.b})
        data, expected = self.model(constant), self.expected()
        with smelt.compile(data, force=True, verify=False, threads=1) as compiled:
            assert not compiled.result.plan.fallbacks
            generated = compiled.result.generated
            assert generated is not None
            kernels = [k.name for entry in generated.source.entries for k in entry.kernels if k.kind == "function"]
            assert kernels == [function]
            np.testing.assert_array_equal(compiled.run(feeds)[0], expected)
            nothing = self.a[:, :0] if self.trans_a else self.a[:0]
            if self.c is None or self.c.ndim < 2:
                assert compiled.run({**feeds, "a": nothing})[0].shape == (0, expected.shape[1])


def _of(name: str, array: np.ndarray, shape: list[object] | None) -> object:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def _random(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(len(shape)).integers(info.min, info.max + 1, shape).astype(dtype)


LAYER, PRODUCT = "smelt_int8_conv", "smelt_int8_product"


@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
def test_qgemm_is_an_8_bit_layer(left: type, right: type) -> None:
    a, bias = _random(left, 9, 37), np.arange(-20, 20, dtype=np.int32) * 1001
    Gemm(a, _random(right, 37, 40), bias, several=True).check(True, LAYER)
    Gemm(a, _random(right, 40, 37), bias[:1], bytes_out=False, trans_b=1).check(True, LAYER)


def test_qgemm_of_any_operands() -> None:
    a, b = _random(np.uint8, 9, 37), _random(np.int8, 37, 20)
    whole = np.arange(180, dtype=np.int32).reshape(9, 20) * 97
    Gemm(a, b, whole, several=True).check(False, PRODUCT)
    Gemm(a, b, whole[:, :1], bytes_out=False, alpha=0.5).check(True, PRODUCT)
    Gemm(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), trans_a=1, trans_b=1).check(False, PRODUCT)


@pytest.mark.parametrize("right", [-128, 127])
def test_extremes_of_qgemm_are_exact(right: int) -> None:
    """255 times 127 and -128 in every term, where pairs of products exceed int16."""
    a, b = np.full((5, 300), 255, np.uint8), np.full((300, 33), right, np.int8)
    Gemm(a, b, bytes_out=False).check(True, LAYER)
    Gemm(a, b, bytes_out=False).check(False, PRODUCT)
