"""Shapes of ops that have no lowering to the tensor language (yet), so that what follows them stays known.

Input: a node's operands, some of them possibly unknown. Output: element type and sizes per output; a size of None is
decided by data and named after the value. Invariant: a rule states what holds for every run, or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from smelt.ir.kernel import IxLike, Tensor, Unsupported, fn, ix, product
from smelt.ops.axes import axis_of
from smelt.ops.registry import Call

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Sized:
    """One output: element type, and sizes of which None is told by the data alone."""

    dtype: str
    shape: tuple[IxLike | None, ...]


@dataclass
class PartialCall(Call):
    """A call some of whose operands are present in the model but unknown: asking for one refuses."""

    unknown: frozenset[int] = field(default_factory=frozenset[int])

    def maybe(self, position: int) -> Tensor | None:
        if position in self.unknown:
            raise Unsupported(f"the type or shape of input {position} is unknown")
        return super().maybe(position)


Rule = Callable[[Call], Sequence[Sized | None]]
_rules: dict[tuple[str, str], Rule] = {}


def shape_rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            _rules[domain, name] = rule
        return rule

    return register


def shapes_of(domain: str, call: Call) -> Sequence[Sized | None] | None:
    """Output shapes by the op's rule; None without one."""
    rule = _rules.get((domain, call.op))
    return None if rule is None else rule(call)


def ruled() -> list[tuple[str, str]]:
    """(domain, op) of every rule, in order: coverage docs and tests derive from it."""
    return sorted(_rules)


# the same as an operand

_LIKE_FIRST = (
    "BatchNormalization", "Bernoulli", "Celu", "CumProd", "CumSum", "Dropout", "GroupNormalization", "Hardmax",
    "InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization",
    "RMSNormalization", "RotaryEmbedding", "Scatter", "ScatterElements", "ScatterND", "Softmax", "TensorScatter",
)  # fmt: skip


@shape_rule(*_LIKE_FIRST)
@shape_rule("BiasAdd", "FastGelu", "GroupNorm", "QuickGelu", "RotaryEmbedding", domain=MICROSOFT)
def like_first(call: Call) -> list[Sized | None]:
    x = call.x()
    first = Sized(x.dtype, x.shape)
    second = Sized("b", x.shape) if call.op == "Dropout" else None
    return [first, second]


@shape_rule("RandomNormalLike", "RandomUniformLike")
def random_like(call: Call) -> list[Sized | None]:
    x = call.x()
    return [Sized((call.out_dtypes[0] if call.out_dtypes else None) or x.dtype, x.shape)]


# quantization


@shape_rule("QuantizeLinear")
@shape_rule("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(call: Call) -> list[Sized | None]:
    zero = call.maybe(2)
    declared = call.out_dtypes[0] if call.out_dtypes else None
    return [Sized(zero.dtype if zero is not None else declared or "u8", call.x().shape)]


@shape_rule("DequantizeLinear")
@shape_rule("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(call: Call) -> list[Sized | None]:
    return [Sized(call.x(1).dtype, call.x().shape)]


@shape_rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call) -> list[Sized | None]:
    return [Sized("u8", call.x().shape), Sized("f32", ()), Sized("u8", ())]


# sizes decided by data


@shape_rule("NonZero")
def non_zero(call: Call) -> list[Sized | None]:
    return [Sized("i64", (max(call.x().rank, 1), None))]


@shape_rule("Compress")
def compress(call: Call) -> list[Sized | None]:
    x = call.x()
    if not call.has("axis"):
        return [Sized(x.dtype, (None,))]
    axis = axis_of(call.int("axis"), x.rank)
    return [Sized(x.dtype, tuple(None if d == axis else s for d, s in enumerate(x.shape)))]


@shape_rule("Unique")
def unique(call: Call) -> list[Sized | None]:
    x = call.x()
    counts = [Sized("i64", (None,))] * 3
    if not call.has("axis"):
        return [Sized(x.dtype, (None,)), *counts]
    axis = axis_of(call.int("axis"), x.rank)
    return [Sized(x.dtype, tuple(None if d == axis else s for d, s in enumerate(x.shape))), *counts]


@shape_rule("NonMaxSuppression")
def non_max_suppression(call: Call) -> list[Sized | None]:
    del call
    return [Sized("i64", (None, 3))]


@shape_rule("TopK")
def top_k(call: Call) -> list[Sized | None]:
    x = call.x()
    axis = axis_of(call.int("axis", -1), x.rank)
    if call.opset < 10:
        count = ix(call.int("k"))
    else:
        found = call.values(1)
        count = fn("max", found[0], 0) if found else None
    shape = tuple(count if d == axis else s for d, s in enumerate(x.shape))
    return [Sized(x.dtype, shape), Sized("i64", shape)]


# sampling


@shape_rule("GridSample")
def grid_sample(call: Call) -> list[Sized | None]:
    x, grid = call.x(0), call.x(1)
    return [Sized(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]


@shape_rule("RoiAlign")
def roi_align(call: Call) -> list[Sized | None]:
    x, regions = call.x(0), call.x(1)
    high, wide = call.int("output_height", 1), call.int("output_width", 1)
    return [Sized(x.dtype, (regions.shape[0], x.shape[1], high, wide))]


# recurrent


@shape_rule("LSTM", "GRU", "RNN")
def recurrent(call: Call) -> list[Sized | None]:
    x, weights = call.x(0), call.x(2)
    directions, hidden = weights.shape[0], weights.shape[2]
    if call.opset >= 14 and call.int("layout", 0):
        batch, steps = x.shape[0], x.shape[1]
        whole, last = (batch, steps, directions, hidden), (batch, directions, hidden)
    else:
        steps, batch = x.shape[0], x.shape[1]
        whole, last = (steps, directions, batch, hidden), (directions, batch, hidden)
    return [Sized(x.dtype, whole), Sized(x.dtype, last), Sized(x.dtype, last)]


# layout


@shape_rule("Col2Im")
def column_to_image(call: Call) -> list[Sized | None]:
    x = call.x()
    image, block = call.values(1), call.values(2)
    if x.rank != 3 or image is None or block is None:
        raise Unsupported("the input has another rank than 3")
    return [Sized(x.dtype, (x.shape[0], x.shape[1] // product(block), *(fn("max", s, 0) for s in image)))]
