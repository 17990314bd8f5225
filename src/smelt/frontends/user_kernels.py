"""`smelt.kernel`: a kernel of the user's own, for an ONNX op and a torch op of the same name.

Input: a name, C text or a launcher of Triton kernels, and the reference as a Python function over numpy arrays. Output:
the op is known to every way in: ONNX files, `smelt.export`, `torch.compile(backend="smelt")`, `smelt.compile(module)`.
Invariant: what is compiled is verified against the reference as built-in ops are against theirs; a kernel that differs
is an error, since nothing could run in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from smelt.base.errors import KernelError
from smelt.ops import LONG
from smelt.ops.user import UserKernel, find_user_kernel, forget_user_kernel, register_user_kernel, split_name

F = TypeVar("F", bound=Callable[..., Any])


def kernel(
    name: str, c: str = "", *, triton: Callable[..., Any] | None = None, reference: Callable[..., Any] | None = None,
    torch: str | None = None, shape: Callable[..., Any] | None = None, dtypes: str | Sequence[str] = (),
    replace: bool = False,
) -> Any:  # fmt: skip
    """Register a kernel for the op `name`, "my.domain::Snake".

    `c` is a C function of elements, `float f(float x, float alpha)`; of a row, `void f(const float *x, float *y,
    int64_t n)`; or of whole tensors, `void f(const smelt_array *x, smelt_array *y)`. `triton` is what a GPU runs: a
    Python function over torch's tensors that allocates results and launches `@triton.jit` kernels; that of a
    `torch.library.triton_op` is taken as it is. One of both will do where the other is not needed.

    Used as a decorator it takes the reference, a function over numpy arrays: parameters without a default are the op's
    tensors, those with one its attributes. `torch` names the torch op that it stands for (the same name, where torch
    has such an op); without a reference, that op is the reference. `shape` gives the sizes of a tensor function's
    results from its operands' shapes, `dtypes` their types ("f32", "i64"). `replace` takes the place of a kernel that
    was registered before.
    """
    domain, op = split_name(name)
    wanted = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    unknown = [one for one in wanted if one not in LONG]
    if unknown:
        raise KernelError(
            "SM-KERNEL-002", f"kernel {name}: no type {unknown[0]!r}", hint=f"Known are {', '.join(LONG)}."
        )
    target = torch or (name if _torch_op(name) is not None else None)
    launcher = triton or _triton_function(target)
    if not c and launcher is None:
        raise KernelError(
            "SM-KERNEL-002", f"kernel {name} has neither C text nor a Triton launcher",
            hint="Give one of them; an op of torch.library.triton_op has a launcher.",
        )  # fmt: skip

    def register(function: F) -> F:
        operands, attributes = _parameters(name, function)
        made = UserKernel(domain, op, c, function, operands, attributes, wanted, shape, launcher)
        register_user_kernel(made, replace=replace)
        if target is not None:
            _register_converter(made, target)
        return function

    if reference is not None:
        return register(reference)
    if target is not None and _torch_op(target) is not None:
        return register(_torch_reference(target))
    return register


def forget_kernel(name: str) -> None:
    """Take a registration back."""
    domain, op = split_name(name)
    known = find_user_kernel(domain, op)
    forget_user_kernel(domain, op)
    if known is not None and _torch_op(name) is not None:
        from smelt.export import forget_converter

        forget_converter(name)


def _parameters(name: str, function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, int | float]]:
    operands, attributes = list[str](), dict[str, int | float]()
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise KernelError("SM-KERNEL-002", f"kernel {name}: the reference names each of its parameters")
        if default is parameter.empty:
            operands.append(parameter.name)
        elif isinstance(default, (int, float)) and not isinstance(default, bool):
            attributes[parameter.name] = default
        else:
            raise KernelError("SM-KERNEL-002", f"kernel {name}: the default of {parameter.name} is no number")
    if not operands:
        raise KernelError("SM-KERNEL-002", f"kernel {name}: the reference takes no tensor")
    return tuple(operands), attributes


def _torch_op(name: str) -> Any:
    """The torch op of that name, where torch is loaded and has it."""
    import sys

    library = sys.modules.get("torch")
    if library is None:
        return None
    namespace, _, op = name.partition("::")
    found = getattr(getattr(library.ops, namespace), op.partition(".")[0], None)
    return getattr(found, op.partition(".")[2] or "default", None)


def _definition(name: str) -> Any:
    """What `torch.library` knows of an op that was written in Python; None for others."""
    from torch._library import custom_ops

    return cast("Any", custom_ops).OPDEFS.get(_torch_op(name)._schema.name)


def _triton_function(name: str | None) -> Callable[..., Any] | None:
    """The Python function of a `torch.library.triton_op`."""
    if name is None or _torch_op(name) is None:
        return None
    from torch._library import triton

    known: Any = cast("Any", triton).triton_ops_to_kernels
    defined = _definition(name)
    return defined._init_fn if defined is not None and _torch_op(name)._schema.name in known else None


def _python_function(name: str) -> Callable[..., Any] | None:
    """What computes the op on a CPU, in Python: that of a `triton_op` is the one that it has for the CPU."""
    defined = _definition(name)
    if defined is None:
        return None
    own = None if _triton_function(name) is not None else defined._init_fn
    wrapped: Any = defined._backend_fns.get("cpu")
    return own if wrapped is None else inspect.getclosurevars(inspect.unwrap(wrapped)).nonlocals.get("fn", wrapped)


def _torch_reference(name: str) -> Callable[..., Any]:
    """The Python function of a `torch.library.custom_op`, over arrays, with the signature that the registration reads.
    The function itself and not the op: the verifying process has no op of that name."""
    op, function = _torch_op(name), _python_function(name)
    if function is None:
        raise KernelError(
            "SM-KERNEL-002", f"the torch op {name} has no function in Python for a CPU, so it cannot be the reference",
            hint="Give reference=function, over numpy arrays; a triton_op may have register_kernel('cpu') instead.",
        )  # fmt: skip

    def reference(*given: Any, **named: Any) -> Any:
        import torch

        made = function(*(torch.from_numpy(np.ascontiguousarray(one)) for one in given), **named)
        several = cast("Sequence[Any]", made) if isinstance(made, (tuple, list)) else (made,)
        return tuple(one.detach().numpy() for one in several)

    reference.__signature__ = _signature(op._schema.arguments)  # type: ignore[attr-defined]
    return reference


def _signature(arguments: Sequence[Any]) -> inspect.Signature:
    kinds = inspect.Parameter
    given = [(one.name, one.default_value if one.has_default_value() else kinds.empty) for one in arguments]
    return inspect.Signature([kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=value) for name, value in given])


def _register_converter(made: UserKernel, target: str) -> None:
    from smelt.export import Call, Refused, register_converter

    def converter(call: Call) -> Any:
        given: Mapping[str, Any] = call.arguments
        attributes = {name: given.get(name, default) for name, default in made.attributes.items()}
        for name, value in attributes.items():
            if not isinstance(value, (int, float)):
                raise Refused(f"the argument {name} of {target} is no constant number")
            attributes[name] = type(made.attributes[name])(value)
        return call.op(made.name, *(given[name] for name in made.operands), domain=made.domain, **attributes)

    register_converter(target)(converter)
