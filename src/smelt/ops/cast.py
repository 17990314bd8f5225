"""Conversions between element types, and tensors made in another tensor's image."""

from __future__ import annotations

import onnx_ir as ir

from smelt.base.dtype import BY_NAME
from smelt.ir.kernel import Expr, Ix, Tensor, Unsupported
from smelt.ir.kernel import expr as E
from smelt.ops.registry import SHORT, Call, op


def target_type(code: int) -> str:
    """The type that values of an ONNX element type are computed in."""
    return BY_NAME[stored_type(code)].compute


def stored_type(code: int) -> str:
    """The vocabulary's name of an ONNX element type."""
    known = {int(long): short for long, short in SHORT.items()}
    if code not in known:
        names = {int(t): t.name.lower() for t in ir.DataType}
        raise Unsupported(f"{names.get(code, f'element type {code}')} has no kernel")
    return known[code]


@op("Cast", since=7, kind="elementwise", steps=True, flops=0)
def cast(call: Call) -> Tensor:
    """To a narrow type it rounds, wherever it stands: the model asks for it."""
    return call.k.cast(call.x(), stored_type(call.int("to")))


@op("CastLike", since=15, kind="elementwise", flops=0)
def cast_like(call: Call) -> Tensor:
    declared = call.out_dtypes[0] if call.out_dtypes else None
    return call.k.cast(call.x(0), declared if declared in E.NARROW else call.x(1).dtype)


@op("EyeLike", since=9, kind="movement")
def eye_like(call: Call) -> Tensor:
    x = call.x()
    if x.rank != 2:
        raise Unsupported("EyeLike takes a matrix")
    dtype = target_type(call.int("dtype")) if call.has("dtype") else x.dtype
    shift = call.int("k", 0)

    def at(where: tuple[Ix, ...]) -> Expr:
        return E.cast(E.op("eq", E.index(where[0] + shift), E.index(where[1])), dtype)

    return call.k.index_map(x.shape, dtype, at)
