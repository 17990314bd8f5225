"""A user's kernel as what a GPU runs: its Triton launcher in the place of its C text.

Input: registered kernels; a call of such an op. Output: rules that a backend for GPUs puts before declarations.
Invariant: operands and results have the types that the model gives them in memory; a launcher that cannot be used is
`Unsupported` with the reason, so that an op that has C text too still runs in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from smelt.base.errors import KernelError
from smelt.ir.kernel import Function, Tensor, Unsupported, ix, product
from smelt.ops.registry import Call

from .call import reference_of
from .triton_launch import Traced, trace_launches

if TYPE_CHECKING:
    from .kernel import UserKernel

Rule = Callable[[Call], "Sequence[Tensor | None]"]
GPU_ALONE: Final = "its kernel is a Triton function alone: compile for a GPU (device), or give it C text too"
_STUB: Final = """#include <smelt/threads/loop.h>
int32_t SMELT_NAME({symbol})(smelt_task *t) {{
  const int32_t code = smelt_fail(t->env, SMELT_E_DEVICE, -1, 0, 0, 0);
  t->env->what = "the CPU", t->env->which = "{title}", t->env->said = "this kernel is for a GPU alone";
  return code;
}}
"""


def launcher_rules(kernels: Sequence[UserKernel]) -> Mapping[tuple[str, str], Rule]:
    """By domain and op, for those that have a launcher."""
    return {(one.domain, one.name): _rule(one) for one in kernels if one.triton is not None}


def _rule(kernel: UserKernel) -> Rule:
    return lambda call: launched(call, kernel)


def launched(call: Call, kernel: UserKernel) -> Sequence[Tensor]:
    """The op as a function that a GPU's launches compute; on a CPU it is an error."""
    operands = _operands(call, kernel)
    attributes = {
        name: call.int(name, default) if isinstance(default, int) else call.float(name, default)
        for name, default in kernel.attributes.items()
    }
    try:
        traced = _traced(kernel, operands, attributes)
    except KernelError as error:
        raise Unsupported(". ".join(part.rstrip(".") for part in (error.message, error.hint) if part)) from error
    symbol = f"gpu_{hashlib.sha256(kernel.full_name.encode()).hexdigest()[:12]}"
    sizes = [size for x in operands for size in x.shape]
    return call.k.function(Function(
        name=symbol, text=_STUB.format(symbol=symbol, title=kernel.full_name), operands=tuple(operands),
        results=traced.results, numbers=tuple(sizes), factors=tuple(float(v) for v in attributes.values()),
        scratch_bytes=ix(0), flops=sum((product(x.shape) for x in operands), ix(0)) * 8,
        reference=reference_of(kernel, list(kernel.operands), list(attributes)), device=traced.code,
    ))  # fmt: skip


def _operands(call: Call, kernel: UserKernel) -> list[Tensor]:
    count = len(kernel.operands)
    if len(call.inputs) != count or any(x is None for x in call.inputs):
        raise Unsupported(f"{kernel.full_name} takes {count} tensors, the node has {len(call.inputs)}")
    stored = [*call.stored, *[None] * count]
    return [call.k.cast(call.x(place), stored[place] or call.x(place).dtype) for place in range(count)]


def _traced(kernel: UserKernel, operands: Sequence[Tensor], attributes: Mapping[str, float]) -> Traced:
    assert kernel.triton is not None
    given = [(tuple(x.shape), x.dtype) for x in operands]
    return trace_launches(kernel.full_name, kernel.triton, given, attributes, alone=not kernel.text)
