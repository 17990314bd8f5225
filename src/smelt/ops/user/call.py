"""A user's C function that is called as it is: per row, or once over whole tensors.

Input: the kernel, its operands and attributes. Output: results of a `Function`. Invariant: the user's text is a unit of
its own; `#line` makes the compiler speak of the user's lines. Rows are shared among threads, a tensor function runs
on one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from smelt.base.errors import KernelError
from smelt.ir.kernel import Function, Ix, Tensor, Unsupported, ix, product
from smelt.ops.registry import Call

from .c_text import ARRAY, SCALARS, Parameter, Signature, function_names

if TYPE_CHECKING:
    from .kernel import UserKernel

_ROW: Final = """#include <smelt/threads/loop.h>
#include <smelt/functions/user.h>
{names}
#line 1 "{title}"
{text}
#line 1 "smelt"
static void {symbol}_rows(void *p, int64_t task) {{
  const smelt_task *t = p;
  const int64_t n = t->s[1];
  for (int64_t row = task * t->step; row < smelt_min((task + 1) * t->step, t->units); row++)
    {name}({arguments});
}}
int32_t SMELT_NAME({symbol})(smelt_task *t) {{ return smelt_launch(t, {symbol}_rows, t->s[0], 16 * t->s[1] + 16, 0); }}
"""
_TENSOR: Final = """#include <smelt/threads/loop.h>
#include <smelt/functions/user.h>
{names}
#line 1 "{title}"
{text}
#line 1 "smelt"
int32_t SMELT_NAME({symbol})(smelt_task *t) {{
{arrays}
  {returned}{name}({arguments});
  {ending}
}}
"""
_FAILS: Final = "return code ? smelt_fail(t->env, SMELT_E_INDEX, -1, code, 0, 0) : 0;"


def row_function(
    call: Call, kernel: UserKernel, signature: Signature, operands: Mapping[str, Tensor],
    attributes: Mapping[str, float], length: Ix,
) -> Sequence[Tensor]:  # fmt: skip
    """Each row is one call of the user's function."""
    _check_dtypes(kernel, signature, operands)
    k = call.k
    shape = k.broadcast(*(x.shape for x in operands.values()))
    wide = {name: k.expand(x, shape) for name, x in operands.items()}
    places = [p for p in signature.parameters if p.is_operand] + list(signature.outputs)
    arguments = [_row_argument(p, places, list(attributes)) for p in signature.parameters]
    symbol = _symbol(kernel)
    text = _ROW.format(**_texts(kernel), symbol=symbol, name=signature.name, arguments=", ".join(arguments))
    return k.function(Function(
        name=symbol,
        text=text,
        operands=tuple(wide[p.name] for p in places if p.is_operand),
        results=tuple((shape, SCALARS[p.type]) for p in signature.outputs),
        numbers=(product(shape[:-1]), length),
        factors=tuple(float(value) for value in attributes.values()),
        scratch_bytes=ix(0),
        flops=product(shape) * 16,
        reference=reference_of(kernel, [p.name for p in places if p.is_operand], list(attributes)),
    ))  # fmt: skip


def _row_argument(parameter: Parameter, places: Sequence[Parameter], attributes: Sequence[str]) -> str:
    if parameter.name == "n" and not parameter.pointer:
        return "n"
    if parameter.pointer:
        const = "const " if parameter.const else ""
        return f"({const}{parameter.type} *)t->b[{places.index(parameter)}] + row * n"
    return f"({parameter.type})t->f[{attributes.index(parameter.name)}]"


def tensor_function(
    call: Call,
    kernel: UserKernel,
    signature: Signature,
    operands: Mapping[str, Tensor],
    attributes: Mapping[str, float],
) -> Sequence[Tensor]:
    """One call over whole tensors, in memory in their own order."""
    shapes = _shapes(kernel, signature, operands, attributes)
    dtypes = kernel.dtypes or tuple(x.dtype for x in operands.values())[:1] * len(shapes)
    if len(dtypes) != len(shapes) or len(shapes) != len(signature.outputs):
        counts = f"{len(signature.outputs)} outputs in C, {len(shapes)} shapes, {len(dtypes)} types"
        raise KernelError("SM-KERNEL-004", f"kernel {kernel.full_name}: {counts}")
    places = [p for p in signature.parameters if p.is_operand] + list(signature.outputs)
    sizes = [operands[p.name].shape for p in places if p.is_operand] + list(shapes)
    numbers = [size for shape in sizes for size in shape]
    symbol = _symbol(kernel)
    text = _TENSOR.format(
        **_texts(kernel), symbol=symbol, name=signature.name, arrays=_arrays(sizes),
        arguments=", ".join(_tensor_argument(p, places, list(attributes)) for p in signature.parameters),
        returned="const int code = " if signature.result == "int" else "",
        ending=_FAILS if signature.result == "int" else "return 0;",
    )  # fmt: skip
    total = sum((product(shape) for shape in sizes), ix(0))
    return call.k.function(Function(
        name=symbol, text=text, operands=tuple(operands[p.name] for p in places if p.is_operand),
        results=tuple(zip(shapes, dtypes, strict=True)), numbers=tuple(numbers),
        factors=tuple(float(value) for value in attributes.values()), scratch_bytes=ix(0), flops=total * 8,
        reference=reference_of(kernel, [p.name for p in places if p.is_operand], list(attributes)),
    ))  # fmt: skip


def _tensor_argument(parameter: Parameter, places: Sequence[Parameter], attributes: Sequence[str]) -> str:
    if parameter.pointer:
        return f"&array{places.index(parameter)}"
    return f"({parameter.type})t->f[{attributes.index(parameter.name)}]"


def _arrays(shapes: Sequence[Sequence[Ix]]) -> str:
    """Locals that describe the tensors."""
    lines, start = list[str](), 0
    for place, shape in enumerate(shapes):
        lines.append(f"  {ARRAY} array{place} = smelt_array_of(t->b[{place}], t->s + {start}, {len(shape)});")
        start += len(shape)
    return "\n".join(lines)


def _shapes(
    kernel: UserKernel, signature: Signature, operands: Mapping[str, Tensor], attributes: Mapping[str, float]
) -> list[tuple[Ix, ...]]:
    """Of the results: those of the first operand unless the user tells."""
    first = next(iter(operands.values()))
    if kernel.shape is None:
        return [tuple(first.shape)] * len(signature.outputs)
    try:
        made = kernel.shape(*(tuple(x.shape) for x in operands.values()), **attributes)
        several = [made] if len(signature.outputs) == 1 and not _is_nested(made) else list(made)
        return [tuple(ix(size) for size in shape) for shape in several]
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise KernelError("SM-KERNEL-004", f"the shape rule of kernel {kernel.full_name} failed: {said}") from error


def _is_nested(made: Any) -> bool:
    return bool(len(made)) and isinstance(made[0], (tuple, list))


def reference_of(
    kernel: UserKernel, order: Sequence[str], attributes: Sequence[str]
) -> Callable[[Any, Sequence[int], Sequence[float]], Sequence[np.ndarray[Any, Any]]]:
    def reference(arrays: Any, numbers: Sequence[int], factors: Sequence[float]) -> Sequence[np.ndarray[Any, Any]]:
        del numbers
        given = dict(zip(order, arrays, strict=False))
        named = {name: type(kernel.attributes[name])(f) for name, f in zip(attributes, factors, strict=True)}
        made = kernel.reference(*(given[name] for name in kernel.operands), **named)
        return several_arrays(made)

    return reference


def several_arrays(made: Any) -> list[np.ndarray[Any, Any]]:
    """The results of a reference, which gives one array or a sequence of them."""
    several = cast("Sequence[Any]", made) if isinstance(made, (tuple, list)) else (made,)
    return [np.asarray(one) for one in several]


def _check_dtypes(kernel: UserKernel, signature: Signature, operands: Mapping[str, Tensor]) -> None:
    for p in signature.parameters:
        if p.is_operand and operands[p.name].dtype != SCALARS[p.type]:
            raise Unsupported(
                f"{p.name} of {kernel.full_name} is {operands[p.name].dtype}, its C function has {p.type}"
            )


def _symbol(kernel: UserKernel) -> str:
    """No name of the user's: an identifier that is the same for the same text."""
    content = f"{kernel.full_name} {kernel.text}"
    return f"user_{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _texts(kernel: UserKernel) -> dict[str, str]:
    """The user's text, its title for the compiler's messages, and names of its functions, one for each build."""
    names = [f"#define {name} SMELT_NAME({_symbol(kernel)}_{name})" for name in function_names(kernel.text)]
    return {"text": kernel.text, "title": kernel.full_name, "names": "\n".join(names)}
