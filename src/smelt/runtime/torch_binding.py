"""Torch tensors in, torch tensors out, over one session and without copies.

Input: a session, and how each of its inputs and outputs maps to torch. Output: `TorchRunner`, called with the list of
arguments of a compiled graph. Invariant: a contiguous tensor's memory is read in place; results own their memory;
nothing of a call is kept after it; one runner may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from smelt.base.errors import InputError
from smelt.runtime.session import Session

_SOME_ADDRESS: Final = 64  # an empty tensor has no address, and ONNX Runtime refuses none
_MOST_INTEGERS: Final = 1024
_FEW: Final = 4  # so many tensors are wrapped faster one by one than together

# torch dtypes that ONNX Runtime wraps by address; others, such as bfloat16, go by DLPack.
_TYPES: Final[dict[str, Any]] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
}

_ONNX_NAMES: Final = {"float32": "float", "float64": "double"}  # others are called alike

Prepare = Callable[[Any], Any]
Shapes = Sequence[Sequence[int]]
Sizes = Callable[[Sequence[Any]], Shapes]


@dataclass(frozen=True)
class Feed:
    """One input of the session: argument `place`, changed by `prepare` where its memory is not as the model's input."""

    name: str
    place: int
    dtype: str
    prepare: Prepare | None = None


@dataclass(frozen=True)
class Fetch:
    """One output of the session. `finish` turns the dense result into what torch expects."""

    name: str
    dtype: str
    finish: Prepare | None = None


class TorchRunner:
    """Calls one session with torch tensors.

    `sizes` are the shapes of all outputs where they are known before the call, or a function that tells them from the
    arguments. The call is one flat function, written for this session: under `torch.compile` every Python frame costs.
    """

    def __init__(
        self, session: Session, feeds: Sequence[Feed], fetches: Sequence[Fetch], sizes: Sizes | Shapes | None = None
    ) -> None:
        _check_types(session, feeds, fetches)
        self.session = session
        self.feeds = (*(f for f in feeds if f.dtype in _TYPES), *(f for f in feeds if f.dtype not in _TYPES))
        self.fetches = tuple(fetches)
        if any(fetch.dtype not in _TYPES for fetch in fetches):
            sizes = None
        self.call: Callable[[Sequence[Any]], list[Any]] = _Writer(self, sizes).function()

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """All outputs of the session, in its order."""
        return self.call(args)


def _check_types(session: Session, feeds: Sequence[Feed], fetches: Sequence[Fetch]) -> None:
    """Memory is handed over without a look at its contents: what the session takes it for must be what it is."""
    arguments = {argument.name: str(argument.type) for argument in (*session.get_inputs(), *session.get_outputs())}
    for slot in (*feeds, *fetches):
        found, wanted = arguments.get(slot.name), f"tensor({_ONNX_NAMES.get(slot.dtype, slot.dtype)})"
        if found != wanted:
            raise InputError("SM-INPUT-002", f"{slot.name!r} is {found} in the model, and {slot.dtype} in torch")


class _Writer:
    """Writes the function of one runner. No text of a model is in it: values are reached through names of ours."""

    def __init__(self, runner: TorchRunner, sizes: Sizes | Shapes | None) -> None:
        import onnxruntime
        import torch

        ort, session = cast("Any", onnxruntime), cast("Any", runner.session)
        native, private = ort.capi._pybind_state, cast("Any", torch._C)  # pyright: ignore[reportPrivateUsage]
        device = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        self.plain = [feed for feed in runner.feeds if feed.dtype in _TYPES]
        self.foreign = [feed for feed in runner.feeds if feed.dtype not in _TYPES]
        self.fetches = runner.fetches
        self.sizes = sizes
        self.space: dict[str, Any] = {
            "vector": native.OrtValueVector,
            "run": session._sess.run_with_ortvaluevector,
            "options": ort.RunOptions(),
            "to_dlpack": private._to_dlpack,
            "from_dlpack": private._from_dlpack,
            "empty": _allocator(),
            "in_names": [feed.name for feed in runner.feeds],
            "in_types": [_TYPES[feed.dtype] for feed in self.plain],
            "in_devices": [device] * len(self.plain),
            "out_names": [fetch.name for fetch in self.fetches],
            "out_types": [_TYPES.get(fetch.dtype) for fetch in self.fetches],
            "out_devices": [device] * len(self.fetches),
        }
        self.space |= {f"i{at}": getattr(torch, feed.dtype) for at, feed in enumerate((*self.plain, *self.foreign))}
        self.space |= {f"d{at}": getattr(torch, fetch.dtype) for at, fetch in enumerate(self.fetches)}

    def function(self) -> Callable[[Sequence[Any]], list[Any]]:
        lines = ["def call(args):", *(f"    {line}" for line in (*self._given(), *self._made(), *self._finished()))]
        exec("\n".join(lines), self.space)  # noqa: S102 - the text is made above, of numbers and our own names
        return self.space["call"]

    def _given(self) -> list[str]:
        """The arguments as values of ONNX Runtime's, over their own memory."""
        lines: list[str] = []
        for at, feed in enumerate((*self.plain, *self.foreign)):
            text = f"args[{feed.place}]"
            if feed.prepare is not None:
                self.space[f"prepare{at}"] = feed.prepare
                text = f"prepare{at}({text})"
            lines += [
                f"a{at} = {text}",
                # What torch computes is not always of the type that its tracing foretold (statistics of mixed types).
                f"if a{at}.dtype is not i{at}: a{at} = a{at}.to(i{at})",
                f"if not a{at}.is_contiguous(): a{at} = a{at}.contiguous()",
            ]
        lines.append("given = vector()")
        lines += self._wrapped("given", [f"a{at}" for at in range(len(self.plain))], "in")
        start = len(self.plain)
        return [*lines, *(f"given.push_back(to_dlpack(a{start + at}), False)" for at in range(len(self.foreign)))]

    def _wrapped(self, target: str, names: Sequence[str], side: str, shapes: str = "") -> list[str]:
        """Wrap the named tensors: truth values and empty tensors only by address, a few others one by one."""
        if len(names) <= _FEW and np.bool_ not in self.space[f"{side}_types"]:
            return [f"{target}.push_back(to_dlpack({name}), False)" for name in names]
        pointers = ", ".join(f"{name}.data_ptr() or {_SOME_ADDRESS}" for name in names)
        shapes = shapes or f"[{', '.join(f'{name}.shape' for name in names)}]"
        listed = ", ".join(names)
        return [f"{target}.push_back_batch([{listed}], [{pointers}], {side}_types, {shapes}, {side}_devices)"]

    def _made(self) -> list[str]:
        count = len(self.fetches)
        call = "run(options, in_names, given, out_names, taken, out_devices)"
        if self.sizes is None:
            taken = [f"r{at} = from_dlpack(taken.dlpack_at({at}))" for at in range(count)]
            # ONNX Runtime hands out truth values as bytes.
            views = [f"r{at} = r{at}.view(d{at})" for at, f in enumerate(self.fetches) if f.dtype == "bool"]
            return ["taken = vector()", call, *taken, *views]
        lines = self._allocated()
        shapes = f"[{', '.join(f's{at}' for at in range(count))}]"
        lines += ["taken = vector()", *self._wrapped("taken", [f"r{at}" for at in range(count)], "out", shapes)]
        return [*lines, call]

    def _allocated(self) -> list[str]:
        """Memory of torch's own for every result."""
        lines: list[str] = []
        if callable(self.sizes):
            self.space["sizes"], self.space["row_major"] = self.sizes, _row_major
            lines.append("".join(f"s{at}, " for at in range(len(self.fetches))) + "= sizes(args)")
            return lines + [f"r{at} = empty(s{at}, row_major(s{at}), d{at})" for at in range(len(self.fetches))]
        for at, shape in enumerate(self.sizes or ()):
            self.space[f"s{at}"], self.space[f"t{at}"] = tuple(shape), _row_major(tuple(shape))
            lines.append(f"r{at} = empty(s{at}, t{at}, d{at})")
        return lines

    def _finished(self) -> list[str]:
        lines: list[str] = []
        for at, fetch in enumerate(self.fetches):
            if fetch.finish is not None:
                self.space[f"finish{at}"] = fetch.finish
                lines.append(f"r{at} = finish{at}(r{at})")
        return [*lines, f"return [{', '.join(f'r{at}' for at in range(len(self.fetches)))}]"]


def integer_feed() -> Prepare:
    """A Python integer as the scalar tensor that stands for it; those met lately are kept."""
    import torch

    known: dict[int, Any] = {}

    def tensor_of(value: int) -> Any:
        found = known.get(value)
        if found is None:
            if len(known) >= _MOST_INTEGERS:
                known.clear()
            found = known[value] = torch.scalar_tensor(int(value), dtype=torch.int64)
        return found

    return tensor_of


def number_feed(dtype: str) -> Prepare:
    """A Python float or bool as a scalar tensor."""
    import torch

    kind = getattr(torch, dtype)
    return lambda value: torch.scalar_tensor(value, dtype=kind)


def _allocator() -> Callable[[Sequence[int], Sequence[int], Any], Any]:
    """Memory for a result, from sizes, strides and dtype. torch's compiled wrappers have a faster way in."""
    import torch

    guards = cast("Any", torch._C)._dynamo.guards  # pyright: ignore[reportPrivateUsage]
    fast = getattr(guards, "_empty_strided_cpu", None)
    return fast or (lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype))


@lru_cache(maxsize=1024)
def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * (shape[axis + 1] or 1)
    return tuple(strides)
