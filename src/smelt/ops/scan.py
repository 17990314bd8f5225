"""Running sums and products along an axis that is an operand, constant or known only at run time."""

from __future__ import annotations

from collections.abc import Sequence

from smelt.ir.kernel import Builder, Ix, Tensor, Unsupported, fn, ix
from smelt.ops.reduction import axis_flags, static_axis
from smelt.ops.registry import Call, op


@op("CumSum", since=11, kind="reduction", cost="heavy")
@op("CumProd", since=26, kind="reduction")
def running(call: Call) -> Tensor:
    x = call.x()
    axes = call.values(1)
    if axes is None or len(axes) != 1:
        raise Unsupported("the axis must be one number")
    if not x.rank:
        raise Unsupported("a scalar has no axis to run along")
    kind = "sum" if call.op == "CumSum" else "prod"
    exclusive, reverse = bool(call.int("exclusive", 0)), bool(call.int("reverse", 0))
    if axes[0].const is not None:
        return call.k.scan(kind, x, static_axis(axes[0].const, x.rank), exclusive=exclusive, reverse=reverse)
    lined_up, flags = _line_up(call.k, x, axes)
    done = call.k.scan(kind, lined_up, x.rank, exclusive=exclusive, reverse=reverse)
    return call.k.view(done, x.shape, lambda w: [*(fn("sel", f, 0, 1) * i for f, i in zip(flags, w, strict=True)),
                                                 _chosen(flags, w)])  # fmt: skip


def _line_up(k: Builder, x: Tensor, axes: Sequence[Ix]) -> tuple[Tensor, list[Ix]]:
    """The run-time axis as one more dimension at the end; its own place has size 1."""
    flags = axis_flags(k, axes, x.rank)
    sizes = [fn("sel", f, 1, n) for f, n in zip(flags, x.shape, strict=True)]
    length = ix(0)
    for flag, size in zip(flags, x.shape, strict=True):
        length = length + fn("sel", flag, size, 0)
    return k.view(x, (*sizes, length), lambda w: [w[d] + flags[d] * w[-1] for d in range(x.rank)]), flags


def _chosen(flags: Sequence[Ix], values: Sequence[Ix]) -> Ix:
    total = ix(0)
    for flag, value in zip(flags, values, strict=True):
        total = total + flag * value
    return total
