"""One call of an ATen op -> a program of ONNX Runtime, kept for the next call of its kind.

Input: an op with its arguments. Output: a `Program`: a session of the translated one-op graph. Invariant: a program is
shared by all calls with the same op, dtypes, constants and pattern of sizes (which are 0 or 1, which are equal); where
the translation relied on more than the pattern, by calls with the very same sizes only.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import onnx_ir as ir
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    free_unbacked_symbols,
)

from smelt.export import reason_against, translate

from ._internals import runtime_state
from .memory import device_word, on_cpu
from .providers import Placement, host_memory, open_session

REFUSED_DTYPES: Final = frozenset(
    (torch.complex32, torch.complex64, torch.complex128, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
)
_HELD: Final = 4096  # exact argument patterns remembered per op


class NoProgramError(Exception):
    """Why ONNX Runtime does not compute this call."""


@dataclass(eq=False)
class Program:
    """A session and how tensors go in and come out.

    inputs: name, ONNX element type, place among the call's tensors. outputs: name, ONNX element type, numpy's dtype.
    dtypes: torch's, of the results.
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
    spare: list[Any] = field(default_factory=list[Any])

    def new_binding(self) -> Any:
        return runtime_state().SessionIOBinding(self.session)


@dataclass(eq=False)
class Bound:
    """A program for calls of the same sizes: their results' sizes are known after the first."""

    program: Program
    shapes: tuple[tuple[int, ...], ...] | None = None


class Programs:
    """The programs of one op."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.by_call: dict[Any, Bound | str] = {}
        self._by_pattern: dict[Any, Program | str] = {}
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
        pattern = _pattern(args, kwargs, placement.index)
        program = self._by_pattern.get(pattern)
        if program is None:
            try:
                program, general = self._translate(args, kwargs, placement)
            except NoProgramError as error:
                program, general = str(error), True
            if general:
                self._by_pattern[pattern] = program
        return program if isinstance(program, str) else Bound(program)

    def _translate(self, args: Sequence[Any], kwargs: Mapping[str, Any], placement: Placement) -> tuple[Program, bool]:
        graph = _trace(self.op, args, kwargs)
        reason = reason_against(graph.call)
        if reason is not None:
            raise NoProgramError(reason)
        made = translate(graph.module)
        if any(slot.kind not in ("tensor", "unused") for slot in made.inputs):
            raise NoProgramError("a size is an input of the program")
        if any(slot.kind != "tensor" for slot in made.outputs):
            raise NoProgramError("nothing is to be computed")
        try:
            session = open_session(made.model, placement)
        except placement.errors as error:
            raise NoProgramError(_first_line(error)) from error
        return _program(made, session, graph, placement.index), graph.general


def _program(made: Any, session: Any, graph: _Traced, index: int) -> Program:
    inputs = tuple(
        (made.model.graph.inputs[slot.index].name, _code(made.model.graph.inputs[slot.index]), place)
        for place, slot in enumerate(made.inputs)
        if slot.kind == "tensor"
    )
    outputs = tuple(
        (made.model.graph.outputs[slot.index].name, _code(made.model.graph.outputs[slot.index]), _numpy(dtype))
        for slot, dtype in zip(made.outputs, graph.dtypes, strict=True)
    )
    return Program(
        session, inputs, outputs, graph.dtypes, graph.single, graph.fixed, host_memory(), index, device_word(index)
    )


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _code(value: ir.Value) -> int:
    assert value.dtype is not None
    return int(value.dtype)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# the one-op graph


@dataclass(frozen=True)
class _Traced:
    """`general`: nothing but the pattern of sizes was relied on."""

    module: GraphModule
    call: Node
    dtypes: tuple[torch.dtype, ...]
    single: bool
    fixed: bool
    general: bool


def _trace(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Traced:
    """A graph of one call, its tensors of free sizes."""
    env = ShapeEnv(specialize_zero_one=True, duck_shape=True)
    mode = FakeTensorMode(shape_env=env)
    graph = Graph()

    def placeholder(tensor: torch.Tensor) -> Node:
        name = f"a{len(graph.nodes)}"
        context: Any = StatelessSymbolicContext
        free = context(dynamic_sizes=[DimDynamic.DUCK] * tensor.dim())
        node = graph.placeholder(name)
        memory = on_cpu(tensor) if tensor.device.type == "ort" else tensor.detach()
        node.meta["val"] = mode.from_tensor(
            memory, static_shapes=False, symbolic_context=free, source=ConstantSource(name)
        )
        return node

    nodes = map_tensors(placeholder, args), map_tensors(placeholder, kwargs)
    call = graph.call_function(op, *nodes)
    given = [torch.fx.map_arg(part, _value) for part in nodes]
    try:
        with mode, _quiet():
            result = op(*given[0], **given[1])
    except Exception as error:
        raise NoProgramError(f"its result is not known ahead: {_first_line(error)}") from error
    call.meta["val"] = result
    results = _tensors_only(result)
    if any(r.dtype in REFUSED_DTYPES for r in results):
        raise NoProgramError("ONNX Runtime's CPU kernels do not compute in the result's type")
    graph.output(_outputs(graph, call, results, isinstance(result, torch.Tensor)))
    fixed = not any(free_unbacked_symbols(r) for r in results)
    dtypes = tuple(r.dtype for r in results)
    single = isinstance(result, torch.Tensor)
    return _Traced(GraphModule(torch.nn.Module(), graph), call, dtypes, single, fixed, not env.guards)


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


def _tensors_only(result: Any) -> list[torch.Tensor]:
    results = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(results, (list, tuple)):
        raise NoProgramError("its result is no tensor")
    many = cast("Sequence[Any]", results)
    if not all(isinstance(r, torch.Tensor) for r in many):
        raise NoProgramError("its result is no tensor")
    return list(many)


def _value(node: Node) -> Any:
    return node.meta["val"]


def _outputs(graph: Graph, call: Node, results: Sequence[torch.Tensor], single: bool) -> tuple[Node, ...]:
    if single:
        return (call,)
    picked: list[Node] = []
    for place, result in enumerate(results):
        node = graph.call_function(operator.getitem, (call, place))
        node.meta["val"] = result
        picked.append(node)
    return tuple(picked)


# patterns of arguments


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


def _pattern(args: Sequence[Any], kwargs: Mapping[str, Any], index: int) -> Any:
    """Sizes by what they have in common: 0, 1, or the number of the first equal one."""
    seen: dict[int, int] = {}

    def size(n: int) -> int:
        return n if n < 2 else 2 + seen.setdefault(n, len(seen))

    def part(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return "tensor", value.dtype, tuple(size(n) for n in value.shape)
        if isinstance(value, (list, tuple)):
            return tuple(part(v) for v in cast("Sequence[Any]", value))
        return type(value), value

    return index, part(list(args)), tuple((name, part(kwargs[name])) for name in sorted(kwargs))
