"""The loop/expression IR: sizes and indices, scalar expressions, and the tensor language."""

from . import expr
from .builder import Builder
from .expr import Expr
from .index import Ix, IxLike, Sym, Unsupported, Val, Var, fn, ix, of, product, show, sym
from .layout import flat, strides
from .tensor import (
    Assemble,
    Buffer,
    Contraction,
    Convolution,
    Function,
    Lowered,
    Map,
    Pool,
    Reduce,
    Result,
    Scan,
    Stored,
    Tensor,
    View,
)
from .window import Geometry

__all__ = [
    "Assemble",
    "Buffer",
    "Builder",
    "Contraction",
    "Convolution",
    "Expr",
    "Function",
    "Geometry",
    "Ix",
    "IxLike",
    "Lowered",
    "Map",
    "Pool",
    "Reduce",
    "Result",
    "Scan",
    "Stored",
    "Sym",
    "Tensor",
    "Unsupported",
    "Val",
    "Var",
    "View",
    "expr",
    "flat",
    "fn",
    "ix",
    "of",
    "product",
    "show",
    "strides",
    "sym",
]  # fmt: skip
