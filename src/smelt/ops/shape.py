"""Values made from sizes, attributes and positions alone: Shape, Size, Constant, ConstantOfShape, Range, Trilu.

Input: a node. Output: pure index arithmetic, no memory is read for it (Trilu masks its operand). Invariant: sizes stay
exact expressions, so that shape computations fold away.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported, View, fn, ix
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import nonneg
from smelt.ops.movement import require_size, values_or_refuse
from smelt.ops.registry import SHORT, Call, op

CONSTANT_LIMIT = 64
RANGE_LIMIT = 2**31 - 1


@op("Shape", since=1, kind="shape")
def shape(call: Call) -> Tensor:
    sizes = call.x().shape
    if call.opset >= 15:
        start = call.int("start", 0)
        end = call.int("end", len(sizes))
        sizes = sizes[_clamped(start, len(sizes)) : _clamped(end, len(sizes))]
    return call.k.vector_of(sizes)


def _clamped(place: int, rank: int) -> int:
    return min(max(place + rank if place < 0 else place, 0), rank)


@op("Size", since=1, kind="shape")
def size(call: Call) -> Tensor:
    return call.k.reshape(call.k.vector_of([call.x().elements]), ())


# Constant


@op("Constant", since=1, kind="shape")
def constant(call: Call) -> Tensor:
    array, dtype = constant_array(call)
    if array.size > CONSTANT_LIMIT:
        raise Unsupported(f"a constant of {array.size} elements stays in the model")
    return constant_tensor(call, array, dtype)


def constant_tensor(call: Call, array: np.ndarray[Any, Any], dtype: str) -> Tensor:
    values = array.reshape(-1).tolist()
    if array.size == 1 or (array.size and all(v == values[0] and v != 0 for v in values)):
        return call.k.const(values[0], dtype, array.shape)
    return call.k.table(values, dtype, array.shape)


def constant_array(call: Call) -> tuple[np.ndarray[Any, Any], str]:
    """The one attribute that a Constant carries, and its dtype."""
    if call.has("value"):
        return tensor_attribute(call, "value")
    if call.has("value_int"):
        return np.array(call.int("value_int"), np.int64), "i64"
    if call.has("value_float"):
        return np.array(call.float("value_float"), np.float32), "f32"
    if call.has("value_ints"):
        return np.array(call.ints("value_ints"), np.int64), "i64"
    if call.has("value_floats"):
        return np.array(_floats(call, "value_floats"), np.float32), "f32"
    raise Unsupported("a constant that is sparse or text has no kernel")


def _floats(call: Call, name: str) -> tuple[float, ...]:
    attribute = call.attributes[name]
    if attribute.is_ref() or attribute.type != ir.AttributeType.FLOATS:
        raise Unsupported(f"attribute {name} is not a list of numbers")
    return tuple(attribute.as_floats())


def tensor_attribute(call: Call, name: str) -> tuple[np.ndarray[Any, Any], str]:
    attribute = call.attributes[name]
    if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        raise Unsupported(f"attribute {name} is not a tensor")
    tensor = attribute.as_tensor()
    dtype = SHORT.get(tensor.dtype)
    if dtype is None:
        raise Unsupported(f"a constant of type {tensor.dtype.name.lower()} has no kernel")
    if tensor.size > CONSTANT_LIMIT:
        raise Unsupported(f"a constant of {tensor.size} elements stays in the model")
    return np.asarray(tensor.numpy()), BY_NAME[dtype].compute


@op("ConstantOfShape", since=9, kind="shape")
def constant_of_shape(call: Call) -> Tensor:
    sizes = [require_size(call, v, "a dimension") for v in values_or_refuse(call, 0)]
    if not call.has("value"):
        return call.k.const(0.0, "f32", sizes)
    array, dtype = tensor_attribute(call, "value")
    if array.size != 1:
        raise Unsupported(f"the fill value has {array.size} elements")
    return call.k.const(array.reshape(-1).tolist()[0], dtype, sizes)


# Range


@op("Range", since=11, kind="shape", cost="move")
def range_(call: Call) -> Tensor:
    start, limit, delta = (_scalar(call, i) for i in range(3))
    dtype = start.dtype
    if limit.dtype != dtype or delta.dtype != dtype:
        raise Unsupported("start, limit and delta differ in type")
    if dtype in E.FLOATS:
        return _float_range(call, start, limit, delta)
    first, stop, step = (_single(call, i) for i in range(3))
    count = _count(call, first, stop, step)
    return call.k.index_map([count], dtype, lambda w: E.cast(E.index(first + w[0] * step), dtype))


def _scalar(call: Call, position: int) -> Expr:
    operand = call.x(position)
    if operand.elements.const != 1:
        raise Unsupported(f"input {position} is not a single number")
    return operand.at([0] * operand.rank)


def _single(call: Call, position: int) -> Ix:
    return values_or_refuse(call, position)[0]


def _count(call: Call, first: Ix, stop: Ix, step: Ix) -> Ix:
    if step.const == 0:
        raise Unsupported("a range has step 0")
    if step.const == 1:
        return fn("max", stop - first, 0)
    if step.const is None and not nonneg(step - 1):
        call.k.require_equal(fn("eq", step, 0), 0, "a range's step must not be 0")
    up, down = (stop - first + step - 1) // step, (first - stop - step - 1) // -step
    return fn("max", fn("sel", fn("lt", step, 0), down, up), 0)


def _float_range(call: Call, start: Expr, limit: Expr, delta: Expr) -> Tensor:
    first, stop, step = (e.kind.value if isinstance(e.kind, E.Const) else None for e in (start, limit, delta))
    if first is None or stop is None or step is None:
        raise Unsupported("the length of a floating-point range is known only at run time")
    if step == 0 or not all(math.isfinite(v) for v in (first, stop, step)):
        raise Unsupported("a range with step 0 or endless bounds")
    count = max(math.ceil((stop - first) / step), 0)
    if count > RANGE_LIMIT:
        raise Unsupported(f"a range of {count} elements")
    dtype = start.dtype

    def at(w: tuple[Ix, ...]) -> Expr:
        return E.op("add", start, E.op("mul", E.cast(E.index(w[0]), dtype), delta))

    return call.k.index_map([count], dtype, at)


# Trilu


@op("Trilu", since=14, kind="movement")
def trilu(call: Call) -> Tensor:
    x = call.x()
    if x.rank < 2:
        raise Unsupported(f"the input has rank {x.rank}, at least 2 is needed")
    offset = ix(0) if call.maybe(1) is None else _single(call, 1)
    upper = call.int("upper", 1) != 0

    def kept(w: tuple[Ix, ...]) -> Expr:
        row, column = E.index(w[0] + offset), E.index(w[1])
        return E.op("le", row, column) if upper else E.op("ge", row, column)

    mask = call.k.make(x.shape[-2:], "b", View(kept, None))
    zero = call.k.const(0, x.dtype)
    return call.k.map(E.select, mask, x, zero)
