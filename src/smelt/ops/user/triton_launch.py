"""A user's Python function that launches Triton kernels -> the launches, with sizes that stay symbols.

Input: the function, the shapes and types of its operands, numbers. Output: `Traced`: what is launched with which
arguments and grid, results and temporaries. Invariant: the function runs over tensors without data, on no GPU; it may
allocate, view and launch, and everything else that it does is an error that names it. What it decides by a size that
the model leaves open is an error too: other sizes would decide otherwise.
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from smelt.base.dtype import BY_NAME, BY_TORCH
from smelt.base.errors import KernelError
from smelt.ir.kernel import Ix, fn, ix, product
from smelt.ir.kernel.device import (
    Constant,
    DeviceArgument,
    DeviceCode,
    DeviceLaunch,
    DeviceNumber,
    DevicePointer,
    DeviceSize,
)

from .triton_text import as_jit, triton_text

Shape = tuple[Ix, ...]
_PRIMES: Final = (61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137)
_OPTIONS: Final = ("num_warps", "num_stages")
_NEW: Final = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
_MOST: Final = 2**31 - 1
_lock = threading.RLock()


@dataclass(frozen=True)
class Traced:
    """`results` are shapes and types."""

    code: DeviceCode
    results: tuple[tuple[Shape, str], ...]


@dataclass
class _Launch:
    function: Any
    given: Mapping[str, Any]
    grid: tuple[Any, ...]
    options: Mapping[str, Any]


@dataclass
class _Sizes:
    """Sizes of the model as torch's symbols, and back."""

    env: Any
    by_key: dict[str, Any] = field(default_factory=dict[str, Any])
    by_symbol: dict[Any, Ix] = field(default_factory=dict[Any, Ix])

    def symbol(self, size: Ix) -> Any:
        if size.const is not None:
            return size.const
        if size.key not in self.by_key:
            self.by_key[size.key] = made = self._made(len(self.by_key))
            self.by_symbol[made.node.expr] = size
        return self.by_key[size.key]

    def _made(self, place: int) -> Any:
        shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        source = importlib.import_module("torch._dynamo.source").ConstantSource(f"size{place}")
        hint = _PRIMES[place % len(_PRIMES)] + 200 * (place // len(_PRIMES))
        made = self.env.create_symbol(hint, source=source, dynamic_dim=shapes.DimDynamic.DYNAMIC)
        return self.env.create_symintnode(made, hint=hint, source=source)

    def size(self, value: Any) -> Ix:
        if isinstance(value, int):
            return ix(value)
        return self._of(value.node.expr)

    def _of(self, expr: Any) -> Ix:
        if expr in self.by_symbol:
            return self.by_symbol[expr]
        if expr.is_Integer:
            return ix(int(expr))
        args = [self._of(arg) for arg in expr.args]
        name = type(expr).__name__
        if name == "Add":
            return sum(args, ix(0))
        if name == "Mul":
            return product(args)
        if name == "Pow" and args[1].const is not None and args[1].const > 0:
            return product([args[0]] * args[1].const)
        known = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max",
                 "Min": "min"}.get(name)  # fmt: skip
        if known is None or len(args) < 2:
            raise ValueError(f"the size {expr} has no counterpart in smelt")
        made = args[0]
        for other in args[1:]:
            made = fn(known, made, other)
        return made


def trace_launches(
    title: str, function: Callable[..., Any], operands: Sequence[tuple[Shape, str]], attributes: Mapping[str, float],
    *, alone: bool,
) -> Traced:  # fmt: skip
    with _lock:
        try:
            made, again = (_Trace(title, alone).run(function, operands, attributes) for _ in range(2))
            if repr(made) != repr(again):
                raise KernelError(
                    "SM-KERNEL-003", f"kernel {title}: its Triton launcher gives other launches each time"
                )
            return made
        except KernelError:
            raise
        except Exception as error:
            raise KernelError(
                "SM-KERNEL-004", f"kernel {title}: its Triton launcher raised {type(error).__name__}: {error}",
                hint="It is called with tensors without data, whose open sizes are symbols.",
            ) from error  # fmt: skip


def _several(value: Any) -> list[Any]:
    return list(cast("Sequence[Any]", value)) if isinstance(value, (tuple, list)) else [value]


class _Trace:
    def __init__(self, title: str, alone: bool) -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
            importlib.import_module("triton")
        except ImportError as error:
            raise KernelError(
                "SM-KERNEL-005", f"kernel {title}: a Triton kernel needs torch and triton", hint=f"{error}"
            ) from error
        shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        self.title, self.alone = title, alone
        self.sizes = _Sizes(shapes.ShapeEnv())
        self.launches: list[_Launch] = []
        self.memory: dict[int, int] = {}  # place by storage
        self.held: list[Any] = []  # storages live as long as their places

    def run(
        self, function: Callable[..., Any], operands: Sequence[tuple[Shape, str]], attributes: Mapping[str, float]
    ) -> Traced:
        fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
        with fake.FakeTensorMode(shape_env=self.sizes.env):
            given = [self._tensor(shape, dtype) for shape, dtype in operands]
            for tensor in given:
                self._place(tensor)
            with self._watched(), self._recorded():
                made = function(*given, **attributes)
            self._check_guards()
            return self._traced(len(given), _several(made))

    def _tensor(self, shape: Shape, dtype: str) -> Any:
        sizes = tuple(self.sizes.symbol(size) for size in shape)
        return self.torch.empty(sizes, dtype=self._torch_type(dtype), device="cuda")

    def _torch_type(self, dtype: str) -> Any:
        name = BY_NAME[dtype].torch
        if not name:
            raise self._error(f"torch has no tensors of {dtype}")
        return getattr(self.torch, name)

    def _short(self, dtype: Any) -> str:
        found = BY_TORCH.get(str(dtype).removeprefix("torch."))
        if found is None or not found.in_kernels:
            raise self._error(f"a tensor of {dtype} has no kernel")
        return found.name

    def _place(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        self.held.append(storage)
        return self.memory.setdefault(storage._cdata, len(self.memory))

    @contextmanager
    def _watched(self) -> Generator[None]:
        """Torch ops that make values are errors."""
        trace = self
        modes: Any = importlib.import_module("torch.utils._python_dispatch")

        class Watch(modes.TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                del types
                made = func(*args, **(kwargs or {}))
                trace.check_op(func, made)
                return made

        with Watch():
            yield

    def check_op(self, func: Any, made: Any) -> None:
        name = func._schema.name.partition("::")[2]
        if isinstance(made, self.torch.Tensor):
            new = made.untyped_storage()._cdata not in self.memory
            self._place(made)
            if func._schema.is_mutable or (new and name not in _NEW):
                raise self._error(f"the torch op {name} is neither an allocation, a view nor a Triton launch")

    @contextmanager
    def _recorded(self) -> Generator[None]:
        """Launches of this thread are written down, and not done."""
        parts = ("jit", "autotuner", "interpreter")
        jit, tuner, interpreter = (importlib.import_module(f"triton.runtime.{name}") for name in parts)
        plain = (jit.JITFunction, interpreter.InterpretedFunction)
        wrapped: Any = importlib.import_module("torch._library.triton")
        thread, tuned = threading.get_ident(), tuner.Autotuner.run
        owns = {kind: kind.run for kind in plain}
        trace = self

        def run(function: Any, *args: Any, grid: Any, warmup: Any = False, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return owns[type(function)](function, *args, grid=grid, warmup=warmup, **kwargs)
            trace.launches.append(trace.launch(as_jit(function), args, grid, kwargs))
            return None

        def run_first(function: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return tuned(function, *args, **kwargs)
            return function.fn.run(*args, **kwargs, **function.configs[0].all_kwargs())

        tuner.Autotuner.run = run_first
        for kind in plain:
            kind.run = run
        try:
            with wrapped.set_wrap_triton_enabled(False):
                yield
        finally:
            tuner.Autotuner.run = tuned
            for kind, own in owns.items():
                kind.run = own

    def launch(self, function: Any, args: Sequence[Any], grid: Any, kwargs: Mapping[str, Any]) -> _Launch:
        options = {name: value for name, value in kwargs.items() if name not in function.arg_names}
        unknown = [n for n, v in options.items() if n not in _OPTIONS and v not in (None, 1, False)]
        if unknown:
            raise self._error(f"the launch option {unknown[0]} is not taken")
        named = {name: value for name, value in kwargs.items() if name in function.arg_names}
        bound = inspect.signature(function.fn).bind(*args, **named)
        bound.apply_defaults()
        sizes = grid(dict(bound.arguments)) if callable(grid) else grid
        return _Launch(function, dict(bound.arguments), (*_several(sizes), 1, 1)[:3], options)

    def _check_guards(self) -> None:
        guards = self.sizes.env.guards
        if guards:
            raise self._error(
                f"its Triton launcher decides by a size that the model leaves open ({guards[0].expr})",
                "Fix the size in the model, or compute the same for every size.",
            )

    # what was seen

    def _traced(self, count: int, made: Sequence[Any]) -> Traced:
        places = [self._place(one) for one in made]
        for one, place in zip(made, places, strict=True):
            whole = one.is_contiguous() and self.sizes.size(one.storage_offset()).const == 0
            if place < count or not whole or places.count(place) > 1:
                raise self._error("a result is not a tensor of its own, allocated and filled by the launcher")
        order = {place: number for number, place in enumerate((*range(count), *places))}
        temporaries: list[tuple[Shape, str]] = []
        code = [self._device_launch(launch, order, temporaries) for launch in self.launches]
        if not code:
            raise self._error("its Triton launcher launches nothing")
        results = [(tuple(map(self.sizes.size, one.shape)), self._short(one.dtype)) for one in made]
        return Traced(DeviceCode(tuple(code), tuple(temporaries), self.alone), tuple(results))

    def _device_launch(
        self, launch: _Launch, order: dict[int, int], temporaries: list[tuple[Shape, str]]
    ) -> DeviceLaunch:
        arguments: list[DeviceArgument] = []
        constants: list[tuple[str, Constant]] = []
        for parameter in launch.function.params:
            value = launch.given[parameter.name]
            if parameter.is_constexpr or value is None:
                constants.append((parameter.name, self._constant(parameter.name, value)))
            else:
                arguments.append(self._argument(parameter, value, order, temporaries))
        text = triton_text(self.title, launch.function)
        x, y, z = (self.sizes.size(size) for size in launch.grid)
        return DeviceLaunch(
            self.title, launch.function.__name__, text.text, tuple(arguments), tuple(constants), (x, y, z),
            int(launch.options.get("num_warps") or 0), int(launch.options.get("num_stages") or 0), text.places,
        )  # fmt: skip

    def _argument(
        self, parameter: Any, value: Any, order: dict[int, int], temporaries: list[tuple[Shape, str]]
    ) -> DeviceArgument:
        name = parameter.name
        if isinstance(value, self.torch.Tensor):
            return self._pointer(name, value, order, temporaries)
        if isinstance(value, (bool, float)):
            return DeviceNumber(name, float(value), "i1" if isinstance(value, bool) else "fp32")
        if not isinstance(value, (int, self.torch.SymInt)):
            raise self._error(f"the argument {name} is a {type(value).__name__}")
        size = self.sizes.size(value)
        large = size.const is not None and size.const > _MOST
        return DeviceSize(name, size, parameter.annotation_type or ("i64" if large else "i32"))

    def _pointer(
        self, name: str, value: Any, order: dict[int, int], temporaries: list[tuple[Shape, str]]
    ) -> DevicePointer:
        place = self._place(value)
        if place not in order:
            order[place] = len(order)
            bytes_each = BY_NAME[self._short(value.dtype)].bits // 8
            elements = self.sizes.size(value.untyped_storage().nbytes() // bytes_each)
            temporaries.append(((elements,), self._short(value.dtype)))
        return DevicePointer(name, order[place], self.sizes.size(value.storage_offset()))

    def _constant(self, name: str, value: Any) -> Constant:
        if isinstance(value, (self.torch.SymInt, self.torch.SymBool)):
            known = self._known(value)
            if known is None:
                raise self._error(
                    f"the constant {name} depends on a size that the model leaves open",
                    "Fix the size in the model, or walk it in blocks of a constant size.",
                )
            return known
        if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton"):
            return f"tl.{value}"
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise self._error(f"the constant {name} is a {type(value).__name__}")
        return value

    def _known(self, value: Any) -> Constant:
        """The number or truth value that a symbolic one always is."""
        if isinstance(value, self.torch.SymBool):
            known = str(value.node.expr)
            return known == "True" if known in ("True", "False") else None
        try:
            return self.sizes.size(value).const
        except ValueError:  # beyond what sizes are made of
            return None

    def _error(self, said: str, hint: str = "") -> KernelError:
        return KernelError("SM-KERNEL-003", f"kernel {self.title}: {said}", hint=hint)
