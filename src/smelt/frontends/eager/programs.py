"""One call of an ATen op -> a program of ONNX Runtime, kept for the next call of its kind.

Input: an op with its arguments. Output: a `Program`: a session of the exporter's one-op program. Invariant: a program
is shared by all calls with the same op, dtypes, ranks and constants whose sizes pass its guards.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import onnx_ir as ir
import torch

from smelt.base.errors import ExportError
from smelt.export import Translation, one_op

from ._internals import runtime_state
from .memory import device_word
from .providers import Placement, host_memory, open_session, runtime_errors
from .unsupported import reason_against

REFUSED_DTYPES: Final = frozenset(
    (torch.complex32, torch.complex64, torch.complex128, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
)
_HELD: Final = 4096  # exact argument patterns remembered per op
_MOST_FRACTIONS: Final = 8  # programs that differ in constants such as a step size
_MOST_PROGRAMS: Final = 128  # programs for tensors of the same types and ranks


class NoProgramError(Exception):
    """Why ONNX Runtime does not compute this call."""


class RefusedCallError(NoProgramError):
    """The CPU's kernel raises for the values of this call; others of its kind may be right."""


@dataclass(eq=False)
class Program:
    """A session and how tensors go in and come out.

    inputs: name, ONNX element type, place among the call's tensors. outputs: name, ONNX element type, numpy's dtype.
    dtypes: torch's, of the results. strided: the CPU's results are not contiguous.
    fixed: equal sizes of the arguments give equal sizes of the results. spare: bindings that no call uses now.
    """

    session: Any
    inputs: tuple[tuple[str, int, int], ...]
    outputs: tuple[tuple[str, int, np.dtype[Any]], ...]
    dtypes: tuple[torch.dtype, ...]
    single: bool
    fixed: bool
    device: Any
    index: int
    word: int
    strided: bool
    spare: list[Any] = field(default_factory=list[Any])

    def new_binding(self) -> Any:
        return runtime_state().SessionIOBinding(self.session)


@dataclass(eq=False)
class Bound:
    """A program for calls of the same sizes: their results' sizes are known after the first.

    strides: those of the results by those of the arguments, where one of these is not contiguous.
    """

    program: Program
    shapes: tuple[tuple[int, ...], ...] | None = None
    strides: dict[Any, list[tuple[int, ...]]] = field(default_factory=dict[Any, list[tuple[int, ...]]])


class Programs:
    """The programs of one op."""

    def __init__(self, op: Any, on_cpu: Callable[..., list[torch.Tensor]] | None) -> None:
        """`on_cpu`: the results of the CPU's kernel, which has the last word on what is right and what is not."""
        self.op = op
        self._on_cpu = on_cpu
        self.by_call: dict[Any, Bound | str] = {}
        self._by_kind: dict[Any, list[tuple[Translation, Program]]] = {}
        self._made: Counter[Any] = Counter()
        self._lock = threading.Lock()

    def find(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any], placement: Placement) -> Bound:
        """Translate, or find what was translated before; raise `NoProgramError` where that is impossible."""
        with self._lock:
            found = self.by_call.get(key)
            if found is None:
                if len(self.by_call) >= _HELD:
                    self.by_call.clear()
                found = self.by_call[key] = self._bound(args, kwargs, placement)
        if isinstance(found, str):
            raise NoProgramError(found)
        return found

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any], placement: Placement) -> Bound | str:
        kind = placement.index, _kind(list(args)), tuple((name, _kind(kwargs[name])) for name in sorted(kwargs))
        shapes = [t.shape for t in tensors_of((args, kwargs))]
        for made, program in self._by_kind.get(kind, ()):
            if made.guards is not None and made.guards.fit(shapes):
                return Bound(program)
        try:
            self._count([list(args), [kwargs[name] for name in sorted(kwargs)]], kind not in self._by_kind)
            wanted = self._on_cpu(args, kwargs) if self._on_cpu is not None else None
            made = self._translated(args, kwargs)
            program = _program(self.op, made, placement, wanted)
        except RefusedCallError:
            raise
        except NoProgramError as reason:
            return str(reason)
        self._by_kind.setdefault(kind, []).append((made, program))
        return Bound(program)

    def _count(self, arguments: Sequence[Any], new: bool) -> None:
        """A constant that is another in each call would give a program to each, and so may sizes."""
        limits = (((float, int, bool), _MOST_PROGRAMS), ((float,), _MOST_FRACTIONS))
        for constants, most in limits[: 2 if new else 1]:
            form = constants, _kind(arguments, constants)
            self._made[form] += 1
            if self._made[form] > most:
                raise NoProgramError("a constant or size that changes from call to call")

    def _translated(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Translation:
        reason = reason_against(self.op, args, kwargs)
        if reason is not None:
            raise NoProgramError(reason)
        try:
            with _quiet():
                made = one_op(self.op, tuple(args), dict(kwargs))
        except ExportError as error:
            raise NoProgramError((error.reasons or (error.message,))[0]) from error
        if any(slot.kind not in ("tensor", "unused") for slot in made.inputs):
            raise NoProgramError("a size is an input of the program")
        if any(slot.kind != "tensor" for slot in made.outputs):
            raise NoProgramError("nothing is to be computed")
        if any(slot.dtype in REFUSED_DTYPES for slot in made.outputs):
            raise NoProgramError("ONNX Runtime's CPU kernels do not compute in the result's type")
        return made


def _program(op: Any, made: Translation, placement: Placement, wanted: list[torch.Tensor] | None) -> Program:
    outputs = [(cast("int", slot.index), slot.dtype) for slot in made.outputs]
    if len({index for index, _ in outputs}) < len(outputs):
        raise NoProgramError("two of the results are one value")
    if wanted and [t.dtype for t in wanted] != [dtype for _, dtype in outputs]:
        raise NoProgramError("the conversion's results have other types")
    try:
        session = open_session(made.model, placement)
    except runtime_errors() as error:
        raise NoProgramError((str(error).strip().splitlines() or [type(error).__name__])[0]) from error
    given, results = made.model.graph.inputs, made.model.graph.outputs
    inputs = [(slot.index, place) for place, slot in enumerate(made.inputs) if slot.index is not None]
    return Program(
        session,
        tuple((given[index].name or "", _code(given[index]), place) for index, place in inputs),
        tuple((results[index].name or "", _code(results[index]), _numpy(dtype)) for index, dtype in outputs),
        tuple(dtype for _, dtype in outputs),
        single=[str(r.type) for r in op._schema.returns] == ["Tensor"],
        fixed=torch.Tag.dynamic_output_shape not in op.tags,
        device=host_memory(), index=placement.index, word=device_word(placement.index),
        strided=any(not t.is_contiguous() for t in wanted or ()),
    )  # fmt: skip


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _code(value: ir.Value) -> int:
    assert value.dtype is not None
    return int(value.dtype)


@contextmanager
def _quiet() -> Generator[None]:
    """PyTorch logs every failure of a fake call with a C++ trace; here a failure is an answer."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def map_tensors(change: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """A copy of nested arguments with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        made = [map_tensors(change, v) for v in cast("Sequence[Any]", value)]
        return made if isinstance(value, list) else tuple(made)
    if isinstance(value, dict):
        return {name: map_tensors(change, v) for name, v in cast("dict[str, Any]", value).items()}
    return value


def tensors_of(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(found.append, value)
    return found


def _kind(value: Any, without: tuple[type, ...] = ()) -> Any:
    """All of an argument but its sizes and constants of some types."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.dim()
    if isinstance(value, (list, tuple)):
        return tuple(_kind(v, without) for v in cast("Sequence[Any]", value))
    return type(value), None if type(value) in without else value
