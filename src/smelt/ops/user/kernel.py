"""Kernels of a user's own: a C function for an ONNX op -> a declaration, like that of a built-in op.

Input: `UserKernel`: name, C text, reference. Output: a lowering in `ops/registry.py`. Invariant: element functions, and
row functions whose loops are reductions and maps, are stated in the tensor language and fused with their neighbours as
built-in ops are; any other row or tensor function is a call of the user's C within the region. Stock ONNX Runtime has
no kernel for the op, so that no cost rule leaves it there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from smelt.base.errors import KernelError
from smelt.ir.kernel import Buffer, Builder, Ix, Tensor, Unsupported
from smelt.ir.kernel import expr as E
from smelt.ops.registry import Call, Declaration, Lowering, forget_declaration, lookup, register_declaration

from .c_text import SCALARS, Form, Parameter, Signature, functions_of, signature_of
from .call import row_function, several_arrays, tensor_function
from .device import launched
from .device import launcher_rules as rules_of
from .evaluate import Env, Evaluator, block_of
from .rows import NotARowError, RowEvaluator
from .values import Arithmetic

if TYPE_CHECKING:
    from smelt.ops.analysis import OwnRules

Attribute = int | float
Shapes = Sequence[Sequence[Any]]
RESERVED: Final = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft")
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*::[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class UserKernel:
    """`operands` are the names of its tensors, `attributes` those of its numbers with their defaults, both as in the
    reference. `dtypes` are those of the results of a tensor function, `shape` gives their sizes from the operands'.
    `triton` launches Triton kernels, over torch's tensors; a kernel that has it may have no C text."""

    domain: str
    name: str
    text: str
    reference: Callable[..., Any] = field(compare=False)
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    dtypes: tuple[str, ...] = ()
    shape: Callable[..., Any] | None = field(default=None, compare=False)
    triton: Callable[..., Any] | None = field(default=None, compare=False)

    @property
    def full_name(self) -> str:
        return f"{self.domain}::{self.name}"

    @property
    def form(self) -> Form:
        return signature_of(self.full_name, self.text).form


_REGISTERED: dict[tuple[str, str], UserKernel] = {}


def user_kernels() -> tuple[UserKernel, ...]:
    return tuple(_REGISTERED.values())


def find_user_kernel(domain: str, name: str) -> UserKernel | None:
    return _REGISTERED.get((domain, name))


def is_user_op(node: ir.Node) -> bool:
    return (node.domain, node.op_type) in _REGISTERED


def digest_of_kernels() -> str:
    """Of what decides whether a kernel is right: its text, and the code of its reference."""
    digest = hashlib.sha256()
    for kernel in _REGISTERED.values():
        parts = [part for one in (kernel.reference, kernel.triton) for part in _code_of(one)]
        digest.update(repr((kernel.full_name, kernel.text, dict(kernel.attributes), kernel.dtypes, parts)).encode())
    return digest.hexdigest()


def _code_of(function: Callable[..., Any] | None) -> tuple[Any, ...]:
    code = getattr(function, "__code__", None)
    return (code.co_code, code.co_consts, code.co_names) if code is not None else ()


def check_user_text(said: str) -> None:
    """Raise what a C compiler said of a user's text, if it did."""
    for kernel in _REGISTERED.values():
        lines = [line for line in said.splitlines() if line.startswith(f"{kernel.full_name}:")]
        if lines:
            raise KernelError("SM-KERNEL-001", "the C compiler does not take it:\n  " + "\n  ".join(lines))


def split_name(name: str) -> tuple[str, str]:
    """Domain and op of "my.domain::Op"."""
    if not _NAME.match(name):
        raise KernelError(
            "SM-KERNEL-002", f"{name!r} is no name for a kernel", hint='Give domain and op, "my.domain::Snake".'
        )
    domain, _, op = name.partition("::")
    if domain in RESERVED or domain == "aten":
        raise KernelError(
            "SM-KERNEL-002", f"the domain {domain!r} belongs to ONNX, ONNX Runtime or PyTorch: kernel {name}",
            hint="Give the op a domain of your own.",
        )  # fmt: skip
    return domain, op


def register_user_kernel(kernel: UserKernel, *, replace: bool = False) -> None:
    """Read the C text, and declare the op."""
    key = (kernel.domain, kernel.name)
    known = lookup(kernel.domain, kernel.name, 1)
    if known is not None and not (replace and key in _REGISTERED):
        raise KernelError(
            "SM-KERNEL-002", f"there is a kernel for {kernel.full_name} already",
            hint="Give replace=True to put this one in its place.",
        )  # fmt: skip
    kind, lowering, form = _stated(kernel)
    forget_user_kernel(kernel.domain, kernel.name)
    register_declaration(
        Declaration(kernel.domain, kernel.name, 1, 0, kind, lowering, _referenced(kernel, form), in_stock=False)
    )
    _REGISTERED[key] = kernel


def _stated(kernel: UserKernel) -> tuple[str, Lowering, Form]:
    """Kind and lowering of the declaration, and the form of the C text."""
    if not kernel.text:
        return "function", lambda call: _launched_alone(call, kernel), "tensor"
    signature = signature_of(kernel.full_name, kernel.text)
    _check_names(kernel, signature)
    lowering = _Lowering(kernel, signature)
    if signature.form == "element":
        lowering.try_element()
    kind = {"element": "elementwise", "row": "normalization", "tensor": "function"}[signature.form]
    return kind, lowering, signature.form


def _launched_alone(call: Call, kernel: UserKernel) -> Sequence[Tensor]:
    if kernel.triton is None:  # a process that verifies has the reference alone
        raise Unsupported("it has no C text")
    return launched(call, kernel)


def launcher_rules() -> OwnRules:
    """For a backend whose regions run on a GPU."""
    return rules_of(user_kernels())


def runs_on_gpu_alone(node: ir.Node) -> bool:
    known = _REGISTERED.get((node.domain, node.op_type))
    return known is not None and not known.text


def forget_user_kernel(domain: str, name: str) -> None:
    if _REGISTERED.pop((domain, name), None) is not None:
        forget_declaration(domain, name)


def _referenced(kernel: UserKernel, form: Form) -> Callable[..., Any]:
    """The user's reference, for operands that the C function takes."""

    def reference(*operands: Any, **attributes: Any) -> tuple[np.ndarray[Any, Any], ...]:
        if form == "row" and len({np.shape(x)[-1:] for x in operands}) > 1:
            raise KernelError("SM-KERNEL-004", f"rows of {kernel.full_name} must be equally long")
        try:
            made = kernel.reference(*operands, **{**kernel.attributes, **attributes})
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise KernelError("SM-KERNEL-004", f"the reference of kernel {kernel.full_name} failed: {said}") from error
        return tuple(several_arrays(made))

    return reference


def _check_names(kernel: UserKernel, signature: Signature) -> None:
    """C parameters are the reference's, besides outputs and the row's length."""
    given = {*kernel.operands, *kernel.attributes}
    wanted = {p.name for p in signature.parameters if not p.is_output}
    if signature.form == "row":
        _check_length(kernel, signature)
        wanted.discard("n")
    if given != wanted:
        raise KernelError(
            "SM-KERNEL-002",
            f"kernel {kernel.full_name}: the C function takes {_listed(wanted)}, the reference {_listed(given)}",
            hint="Tensors are the reference's parameters without a default, attributes those with one.",
        )
    tensors = {p.name for p in signature.parameters if p.is_operand or (signature.form == "element")}
    by_value = [name for name in kernel.operands if name not in tensors]
    if by_value:
        raise KernelError(
            "SM-KERNEL-002", f"kernel {kernel.full_name}: {_listed(by_value)} of the C function is no const pointer",
            hint="In row and tensor functions each tensor is a pointer; numbers are attributes, with a default.",
        )  # fmt: skip


def _check_length(kernel: UserKernel, signature: Signature) -> None:
    last = signature.parameters[-1]
    named = [p for p in signature.parameters if p.name == "n" and not p.pointer and p.type in ("int64_t", "long")]
    if not named:
        raise KernelError(
            "SM-KERNEL-001", f"kernel {kernel.full_name}: a row function has a parameter int64_t n (it has {last.name})"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _respelled(k: Builder, x: Tensor, length: Ix) -> Tensor:
    """Rows whose length is known to be another size have that one, so that loops over both are one."""
    return x if x.shape[-1] == length else k.view(x, (*x.shape[:-1], length), lambda w: w)


@dataclass(frozen=True)
class _Lowering:
    """One kernel as a lowering of the registry."""

    kernel: UserKernel
    signature: Signature

    def __call__(self, call: Call) -> Tensor | Sequence[Tensor | None]:
        operands = self._operands(call)
        if self.signature.form == "element":
            return self._element(call, operands)
        if self.signature.form == "row":
            return self._row(call, operands)
        return tensor_function(call, self.kernel, self.signature, operands, self._attributes(call))

    def try_element(self) -> None:
        """Raises where the text has something that no element function may have."""
        k = Builder()
        operands = {name: k.stored(Buffer(name, "f32", ())) for name in self.kernel.operands}
        self._evaluated(Arithmetic(k, "f32"), {**operands, **self.kernel.attributes})

    def _evaluated(self, arithmetic: Arithmetic, values: Env) -> Tensor:
        functions = functions_of(self.kernel.full_name, self.kernel.text)
        given = [values[p.name] for p in self.signature.parameters]
        made = Evaluator(functions, arithmetic).function(self.signature.name, given)
        return made if isinstance(made, Tensor) else arithmetic.typed(made, arithmetic.dtype_of(made))

    def _operands(self, call: Call) -> dict[str, Tensor]:
        count = sum(x is not None for x in call.inputs)
        if count != len(self.kernel.operands) or len(call.inputs) != count:
            raise Unsupported(
                f"{self.kernel.full_name} takes {len(self.kernel.operands)} tensors, the node has {count}"
            )
        return {name: call.x(place) for place, name in enumerate(self.kernel.operands)}

    def _attributes(self, call: Call) -> dict[str, Attribute]:
        return {
            name: call.int(name, default) if isinstance(default, int) else call.float(name, default)
            for name, default in self.kernel.attributes.items()
        }

    def _element(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        stored, arithmetic = self._arithmetic(call, operands)
        values: Env = {name: self._computed(call, x, arithmetic.dtype) for name, x in operands.items()}
        values.update(self._attributes(call))
        tensor = self._evaluated(arithmetic, values)
        shape = call.k.broadcast(*(x.shape for x in operands.values()))
        tensor = tensor if tensor.rank == len(shape) else call.k.expand(tensor, shape)
        return call.k.cast(tensor, stored if tensor.dtype in E.FLOATS else tensor.dtype)

    def _row(self, call: Call, operands: Mapping[str, Tensor]) -> Sequence[Tensor]:
        length = self._length(call, operands)
        operands = {name: _respelled(call.k, x, length) for name, x in operands.items()}
        try:
            return self._stated_row(call, operands, length)
        except (NotARowError, KernelError):  # the C compiler understands more
            return row_function(call, self.kernel, self.signature, operands, self._attributes(call), length)

    def _stated_row(self, call: Call, operands: Mapping[str, Tensor], length: Ix) -> Sequence[Tensor]:
        stored, arithmetic = self._arithmetic(call, operands)
        functions = functions_of(self.kernel.full_name, self.kernel.text)
        arrays = {name: self._computed(call, x, arithmetic.dtype) for name, x in operands.items()}
        run = RowEvaluator(functions, arithmetic, length, arrays)
        env: Env = {**self._attributes(call), "n": call.k.index_map((), "i64", lambda _: E.index(length))}
        run.run(block_of(functions.by_name[self.signature.name].body), env)
        missing = [p.name for p in self.signature.outputs if p.name not in run.arrays]
        if missing:
            raise NotARowError(f"{missing[0]} is never written")
        shape = call.k.broadcast(*(x.shape for x in operands.values()))
        return [self._result(call, run.arrays[p.name], p, stored, shape) for p in self.signature.outputs]

    def _result(self, call: Call, x: Tensor, output: Parameter, stored: str, shape: Sequence[Ix]) -> Tensor:
        """In the type of the output's pointer; `float` is the operands' own type."""
        dtype = stored if output.type in ("float", "double") else SCALARS[output.type]
        whole = (*shape[:-1], x.shape[-1])
        return call.k.cast(x if x.rank == len(whole) else call.k.expand(x, whole), dtype)

    def _length(self, call: Call, operands: Mapping[str, Tensor]) -> Ix:
        if not all(x.rank for x in operands.values()):
            raise Unsupported(f"{self.kernel.full_name} works on rows, and an operand has no axes")
        first, *others = [x.shape[-1] for x in operands.values()]
        for other in others:
            call.k.require_equal(first, other, f"rows of {self.kernel.full_name} must be equally long")
        return next((x.shape[-1] for x in operands.values() if x.shape[-1].const is not None), first)

    def _arithmetic(self, call: Call, operands: Mapping[str, Tensor]) -> tuple[str, Arithmetic]:
        """The floating type of the operands in memory, and arithmetic in the type that it is computed in."""
        floats = [x.dtype for x in operands.values() if x.dtype in E.FLOATS + E.NARROW]
        if len(set(floats)) > 1:
            raise Unsupported(f"operands of {self.kernel.full_name} are {' and '.join(sorted(set(floats)))}")
        stored = floats[0] if floats else "f32"
        return stored, Arithmetic(call.k, "f64" if stored == "f64" else "f32")

    def _computed(self, call: Call, x: Tensor, dtype: str) -> Tensor:
        return call.k.cast(x, dtype) if x.dtype in E.NARROW else x
