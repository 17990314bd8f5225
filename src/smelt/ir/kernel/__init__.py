"""The loop/expression IR: sizes and indices, scalar expressions, and the tensor language."""

from . import expr
from .expr import Expr
from .index import Ix, IxLike, Sym, Val, Var, fn, ix, of, product, show, sym
from .tensor import Assemble, Buffer, Builder, Map, MatMul, Reduce, Refusal, Scan, Stored, Tensor, View, flat, strides

__all__ = [
    "Assemble", "Buffer", "Builder", "Expr", "Ix", "IxLike", "Map", "MatMul", "Reduce", "Refusal", "Scan", "Stored",
    "Sym", "Tensor", "Val", "Var", "View", "expr", "flat", "fn", "ix", "of", "product", "show", "strides", "sym",
]  # fmt: skip
