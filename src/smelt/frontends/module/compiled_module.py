"""`smelt.compile(module)`: a module that runs in ONNX Runtime.

Input: a torch module and options. Output: `CompiledModule`, called as the module is. Invariant: it is the module to the
outside (parameters, buffers, state, methods, training mode); a call that no kept program serves makes a new one, or
runs in torch where that is impossible, remembered with the reason; a change of a weight is seen by the next call.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import threading
import time
import types
import warnings
import weakref
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from smelt.base.config import Config
from smelt.base.errors import TorchError
from smelt.base.log import logger
from smelt.base.progress import open_progress
from smelt.frontends.torch_compile.calls.frozen import watch
from smelt.frontends.torch_compile.inspection.record import Listening, Record
from smelt.frontends.torch_compile.lower import lower
from smelt.frontends.torch_compile.options import TorchOptions, read_options
from smelt.frontends.torch_compile.parts.part import Fixed
from smelt.frontends.torch_compile.parts.sessions import Settings
from smelt.passes import read_budget
from smelt.pipeline import Options

from .alike import Alike, alike
from .capture import Captured, capture
from .guard import CaptureError

_log: Final = logger("torch")
_KEPT: Final = 8
_QUICK: Final = 256
_OF_THE_PROCESS: Final = (
    "_programs", "_quick", "_refused", "_dropped", "_lock", "_numbers", "_compiled", "_followed", "_holder",
)  # fmt: skip
_CONTAINERS: Final = (tuple, list, dict, deque)
_VALUES: Final = (torch.Tensor, bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout)


@dataclass(eq=False)
class Program:
    """A captured graph, compiled.

    places: where its weights lie, each a dictionary and a key: another tensor may be put there. state: the weights that
    it holds, by address and version, when they are constants.
    """

    captured: Captured
    call: Callable[[list[Any]], Sequence[Any]]
    record: Record
    places: list[tuple[Any, str]] = field(default_factory=list[tuple[Any, str]])
    state: tuple[tuple[int, int], ...] = ()
    calls: int = 0

    @property
    def weights(self) -> list[torch.Tensor]:
        return [held[name] for held, name in self.places]


@dataclass(frozen=True)
class Computed:
    """What torch itself gave for a call that was found not to be captured."""

    result: Any


class CompiledModule(torch.nn.Module, metaclass=Alike):
    """Made by `smelt.compile(module, ...)`.

    `dynamic`: sizes are free wherever the module leaves them free (True), or fixed to each call's (False). `kept`: how
    many programs are kept; the least recently used goes. `options`: as those of `torch.compile(backend="smelt")`.
    """

    def __new__(cls, module: torch.nn.Module, *_args: Any, **_options: Any) -> CompiledModule:
        return _blank(type(module))

    def __init__(
        self, module: torch.nn.Module, *, dynamic: bool = True, kept: int = _KEPT,
        options: TorchOptions | Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        cast("dict[str, Any]", self.__dict__)["wrapped"] = module
        self.dynamic, self.kept = dynamic, kept
        self._settings = Settings(read_options(options, Config.from_env()), Config.from_env())
        self._forget()
        self._holder = _Holder(self)
        self.training = module.training

    # calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and not self.training and not self._forward_hooks and not self._forward_pre_hooks:
            program = self._at_once(args)
            if program is not None:
                program.calls += 1
                return program.call([*program.weights, *args] if program.places else list(args))[0]
        return super().__call__(*args, **kwargs)

    def _at_once(self, args: Sequence[Any]) -> Program | None:
        """The program of a call just like an earlier one: plain tensors of the same sizes, one tensor as its result."""
        if not self._quick:
            return None
        try:
            if len(args) == 1:  # a comprehension costs as much as the lookup
                program = self._quick.get((args[0].shape, args[0].dtype, args[0].requires_grad))
            else:
                program = self._quick.get(tuple([(a.shape, a.dtype, a.requires_grad) for a in args]))
        except AttributeError:  # not all are tensors
            return None
        if program is None or (program.state and program.state != _state(program.weights)):
            return None
        return program

    def _remember(self, program: Program, args: Sequence[Any], leaves: Sequence[Any]) -> None:
        plain = len(args) == len(leaves) and all(a.__class__ is torch.Tensor for a in args)
        captured = program.captured
        if plain and captured.out_spec.is_leaf() and captured.results == ((False, 0),) and not captured.written:
            if len(self._quick) >= _QUICK:
                self._quick.clear()
            kinds = tuple((a.shape, a.dtype, False) for a in args)
            self._quick[kinds[0] if len(kinds) == 1 else kinds] = program

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and (self.training or _wants_gradient((args, kwargs))):
            return self._trainable()(*args, **kwargs)
        args = _plain_features(self.wrapped, args)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        program = self._find(leaves, spec)
        if program is None:
            program = self._make(args, kwargs, leaves, spec)
        if isinstance(program, Computed):
            return program.result
        if isinstance(program, str):
            return self._by_dynamo()(*args, **kwargs)
        if not kwargs:
            self._remember(program, args, leaves)
        return self._run(program, leaves)

    def _find(self, leaves: Sequence[Any], spec: Any) -> Program | None:
        for key in reversed(tuple(self._programs)):
            program = self._programs[key]
            guard = program.captured.guard
            if guard.in_spec == spec and not guard.refuses(leaves):
                if program.state and program.state != _state(program.weights):
                    self._drop(key, "a weight has changed")
                    self._changed = True
                    continue
                self._programs.move_to_end(key)
                return program
        return None

    def _run(self, program: Program, leaves: Sequence[Any]) -> Any:
        captured = program.captured
        program.calls += 1
        results = program.call([*program.weights, *leaves])
        count = len(captured.written)
        for name, value in zip(captured.written, results, strict=False):
            self.wrapped.get_buffer(name).copy_(value)
        made = [value if constant else results[count + value] for constant, value in captured.results]
        return pytree.tree_unflatten(made, captured.out_spec)

    def _make(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any], spec: Any
    ) -> Program | Computed | str:  # fmt: skip
        changeable = _changeable(leaves, spec)
        if changeable is not None:
            return self._refused.setdefault(changeable, f"a call may change its {changeable.__name__}")
        with self._lock:
            found = self._find(leaves, spec)
            if found is not None:
                return found
            kind = _kind_of_call(leaves, spec, self.dynamic)
            reason = self._refused.get(kind)
            if reason is not None:
                return reason
            try:
                program = self._traced(args, kwargs)
            except CaptureError as error:
                if self._settings.options.strict:
                    raise
                eager = self.wrapped(*args, **kwargs)  # raises where the arguments are wrong, in the module's own words
                self._refused[kind] = error.message
                text = f"smelt: the module is not captured whole, torch.compile takes over: {error.message}"
                warnings.warn(text, stacklevel=4)
                return Computed(eager)
            self._programs[next(self._numbers)] = program
            while len(self._programs) > self.kept:
                self._drop(next(iter(self._programs)), "least recently used")
            return program

    def _traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
        """A program for this call and those like it. It takes a while, and says so at once."""
        name, started = type(self.wrapped).__name__, time.monotonic()
        _log.info("compiling %s; later calls of this kind will find it compiled", name)
        with open_progress(self._settings.config, name) as progress:
            step = progress.task(f"trace {name}", 1)
            captured = capture(self.wrapped, args, kwargs, self.dynamic)
            step()
            program = self._compile(captured)
        _log.info("%s is compiled for %s in %.1f s", name, _served(program), time.monotonic() - started)
        return program

    def _compile(self, captured: Captured) -> Program:
        places = [self._place(captured, kind, name) for kind, name in captured.owned]
        weights = [held[name] for held, name in places]
        names = [n.name for n in captured.graph.graph.nodes if n.op == "placeholder"][: len(weights)]
        frozen = not self._changed and not captured.written
        fixed = Fixed(constants=dict(zip(names, weights, strict=True))) if frozen else Fixed(weights=names)
        with Listening() as record:
            call = lower(captured.graph, "inference", self._settings, fixed)
        return Program(captured, call, record, places, _state(weights) if frozen else ())

    def _place(self, captured: Captured, kind: InputKind, name: str) -> tuple[Any, str]:
        owner, _, last = name.rpartition(".")
        if kind == InputKind.PARAMETER:
            return self.wrapped.get_submodule(owner)._parameters, last
        if kind == InputKind.BUFFER:
            return self.wrapped.get_submodule(owner)._buffers, last
        return captured.program.constants, name

    def _trainable(self) -> Any:
        if self._compiled is None:
            self._compiled = self._through_torch_compile(None)
        return self._compiled

    def _by_dynamo(self) -> Any:
        """For calls that are not captured whole, and those whose arguments hold state, which Dynamo follows."""
        if self._followed is None:
            self._followed = self._through_torch_compile(True if self.dynamic else None)
        return self._followed

    def _through_torch_compile(self, dynamic: bool | None) -> Any:
        backend: Any = torch.compile
        options = {"freeze": False, **self._given()}
        return backend(self.wrapped, backend="smelt", dynamic=dynamic, options=options)

    def _given(self) -> dict[str, Any]:
        from dataclasses import fields

        chosen, plain = self._settings.options, TorchOptions()
        values = {f.name: getattr(chosen, f.name) for f in fields(chosen)}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}

    def _drop(self, key: int, reason: str) -> None:
        self._programs.pop(key, None)
        self._quick.clear()
        self._dropped.append(reason)

    def _forget(self) -> None:
        """No program is kept."""
        self._programs: OrderedDict[int, Program] = OrderedDict()
        self._quick: dict[Any, Program] = {}
        self._refused: dict[Any, str] = {}
        self._dropped: list[str] = []
        self._changed = False
        self._compiled: Any = None
        self._followed: Any = None
        self._lock = threading.RLock()
        self._numbers: Iterator[int] = iter(range(1 << 62))

    def save(self, directory: str | Path, *args: Any, **kwargs: Any) -> Path:
        """Write an artifact that `smelt.load` opens in a process of its own, without tracing or compiling.

        It serves the calls that the program used last serves; give arguments to choose another.
        """
        from .saved import save_program

        if not (args or kwargs or self._programs):
            raise TorchError(
                "SM-TORCH-004", f"there is no program to save: {self._why_none()}",
                hint="Call it once with example arguments, or give them here: save(folder, *args, **kwargs).",
            )  # fmt: skip
        if args or kwargs:
            captured = capture(self.wrapped, args, kwargs, self.dynamic)
        else:
            captured = self.programs[-1].captured
        options = self._settings.options
        chosen = Options(
            verify=options.verify,
            tune=options.tune,
            skip_passes=tuple(options.skip_passes),
            patterns=options.patterns,
            precision=options.precision,
            accuracy=options.accuracy,
            calibrate=options.calibrate,
            budget=read_budget(options.budget, options.precision),
            metric=options.metric,
        )
        return save_program(captured, directory, chosen, self._settings.config)

    def _why_none(self) -> str:
        reason = next(iter(self._refused.values()), "")
        return f"its calls are not captured whole: {reason}" if reason else "the module was not called yet"

    # what it tells

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that are kept, the one used last at the end."""
        return tuple(self._programs.values())

    def explain(self) -> str:
        """Programs, what each serves and what runs where; calls that torch runs, and why."""
        lines = [f"{len(self._programs)} programs kept (at most {self.kept}), {len(self._dropped)} dropped"]
        for program in self._programs.values():
            lines.append(f"  {_served(program)}: {program.calls} calls")
            for graph in program.record.graphs:
                inside = sum(part.in_kernels for part in graph.parts)
                total = sum(part.onnx_nodes for part in graph.parts)
                lines.append(
                    f"    {graph.taken} of {graph.nodes} ATen nodes in ONNX Runtime; "
                    f"{inside} of {total} ONNX nodes in kernels"
                )
                lines += [f"    in torch: {node.target}: {node.reason}" for node in graph.fallback_nodes]
        lines += [f"  by torch.compile: {reason}" for reason in self._refused.values()]
        return "\n".join(lines)

    # being the module

    @property
    def wrapped(self) -> torch.nn.Module:
        return self.__dict__["wrapped"]

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """That of the module: its methods, called with this as `self`, may use `super()`."""
        return type(self.__dict__["wrapped"]) if "wrapped" in self.__dict__ else CompiledModule

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            value = getattr(self.__dict__["wrapped"], name)
        if isinstance(value, types.MethodType) and value.__self__ is self.__dict__["wrapped"]:
            return types.MethodType(value.__func__, self)  # a method that calls the module calls this one
        return value

    def train(self, mode: bool = True) -> CompiledModule:
        self.training = mode
        self.wrapped.train(mode)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.named_buffers(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.named_modules(*args, **kwargs)

    def children(self) -> Any:
        return self.wrapped.children()

    def _apply(self, fn: Any, recurse: bool = True) -> CompiledModule:
        """Moves and casts: programs hold tensors of before."""
        self.wrapped._apply(fn, recurse)
        self._forget()
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = {
            name: value for name, value in self.__dict__.items() if not name.startswith("_c") or name == "_changed"
        }
        for name in _OF_THE_PROCESS:
            state.pop(name, None)
        return state

    def __reduce_ex__(self, protocol: Any) -> Any:
        del protocol
        return _blank, (type(self.wrapped),), self.__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
        self._holder = _Holder(self)

    def __repr__(self) -> str:
        return f"CompiledModule({self.wrapped!r})"


class _Holder:
    """What `smelt.refresh` reaches a module's programs by."""

    def __init__(self, owner: CompiledModule) -> None:
        self._owner = weakref.ref(owner)
        watch(self)

    def refresh(self, tensors: set[int] | None) -> None:
        """Drop all programs if they hold one of the tensors."""
        owner = self._owner()
        if owner is not None and (tensors is None or tensors & {id(p) for p in owner.parameters()}):
            owner._forget()  # pyright: ignore[reportPrivateUsage]


def _state(weights: Sequence[torch.Tensor]) -> tuple[tuple[int, int], ...]:
    """What shows a change: an address or a version. Writes through `.data` or numpy show in neither."""
    return tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights)


def _plain_features(module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A SentenceTransformer takes what a tokenizer gives, a mapping of tensors that its modules add to, and returns it:
    nobody looks at the mapping that it was called with."""
    if type(module).__module__.partition(".")[0] != "sentence_transformers":
        return args
    return tuple(dict(cast("Any", arg)) if isinstance(arg, UserDict) else arg for arg in args)


def _wants_gradient(arguments: Any) -> bool:
    leaves, _ = pytree.tree_flatten(arguments)
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def _blank(original: type[Any]) -> CompiledModule:
    """A wrapper for a module of that class, not yet set up."""
    made = alike(CompiledModule, original)
    return torch.nn.Module.__new__(made)


def _changeable(leaves: Sequence[Any], spec: Any) -> type[Any] | None:
    """The class of an argument that is neither a value nor a plain container, say a cache: a call may change it."""
    odd = next((type(leaf) for leaf in leaves if not isinstance(leaf, _VALUES)), None)
    if odd is not None or spec.is_leaf():
        return odd
    if not issubclass(spec.type, _CONTAINERS) and not is_dataclass(spec.type):
        return spec.type
    return next((found for child in spec.children() if (found := _changeable((), child)) is not None), None)


def _kind_of_call(leaves: Sequence[Any], spec: Any, dynamic: bool) -> Any:
    """What calls have in common that are captured alike. Of sizes that may vary, 0 and 1 are others than the rest."""

    def part(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return type(leaf), repr(leaf)
        return leaf.dtype, tuple(min(size, 2) if dynamic else size for size in leaf.shape)

    return str(spec), tuple(part(leaf) for leaf in leaves)


def _served(program: Program) -> str:
    parts: list[str] = []
    for check in program.captured.guard.checks:
        if check[0] == "tensor":
            sizes = ", ".join(s if isinstance(s, str) else str(s) if isinstance(s, int) else "..." for s in check[2])
            parts.append(f"{str(check[1]).removeprefix('torch.')}[{sizes}]")
        elif check[0] == "equal":
            parts.append(repr(check[1]))
    return "(" + ", ".join(parts) + ")"
