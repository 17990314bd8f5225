"""The loop/expression IR: sizes and indices, scalar expressions, and the tensor language."""

from . import expr
from .builder import Builder
from .expr import Expr
from .index import Ix, IxLike, Refusal, Sym, Val, Var, fn, ix, of, product, show, sym
from .layout import flat, strides
from .tensor import (
    Assemble,
    Buffer,
    Function,
    Map,
    MatMul,
    Product,
    Reduce,
    Result,
    Scan,
    Stored,
    Tensor,
    View,
    Window,
)
from .window import Geometry

__all__ = [
    "Assemble", "Buffer", "Builder", "Expr", "Function", "Geometry", "Ix", "IxLike", "Map", "MatMul", "Product",
    "Reduce", "Refusal", "Result", "Scan", "Stored", "Sym", "Tensor", "Val", "Var", "View", "Window", "expr", "flat",
    "fn", "ix", "of", "product", "show", "strides", "sym",
]  # fmt: skip
