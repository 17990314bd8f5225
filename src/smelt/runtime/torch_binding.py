"""Torch tensors in, torch tensors out, over one session and without copies.

Input: a session, and how each of its inputs and outputs maps to torch. Output: `TorchRunner`, called with the list of
arguments of a compiled graph. Invariant: a contiguous tensor's memory is read in place, on a GPU as on the CPU; results
own their memory; of a call nothing is kept but addresses and sizes; one runner may be called from several threads at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Final, cast

import numpy as np

from smelt.base.dtype import BY_TORCH, KERNEL_DTYPES
from smelt.base.errors import InputError
from smelt.runtime.session import Session
from smelt.runtime.torch_device import RUN_CONFIG, Gpu, Queue, queue_of

_SOME_ADDRESS: Final = 64  # an empty tensor has no address, and ONNX Runtime refuses none
_MOST_INTEGERS: Final = 1024
_SMALL: Final = 1024  # elements of a result that is made ahead of its call
_AHEAD: Final = 16
_FEW: Final = 4  # so many tensors are wrapped faster one by one than together

# torch dtypes that ONNX Runtime wraps by address; others, such as bfloat16, go by DLPack.
_TYPES: Final[dict[str, Any]] = {
    d.torch: d.numpy.type for d in KERNEL_DTYPES if d.numpy is not None and d.numpy.isbuiltin == 1
}

# What a binding is told: the numbers of `onnx.TensorProto`, since numpy's types cost a lookup at every call.
_NUMBERS: Final = {name: dtype.onnx for name, dtype in BY_TORCH.items()}

_ONNX_NAMES: Final = {name: dtype.onnx_name for name, dtype in BY_TORCH.items()}

Prepare = Callable[[Any], Any]
Mark = Callable[[Any], None]
Shapes = Sequence[Sequence[int]]
Sizes = Callable[[Sequence[Any]], Shapes]


@dataclass(frozen=True)
class Feed:
    """One input of the session: argument `place`, changed by `prepare` where its memory is not as the model's input.

    `sure`: whoever calls sees to it that what is given is dense and of this type in every call, and of this `shape`
    where there is one: nobody looks again. `on_host`: it lies on the CPU wherever the session runs, as numbers do.
    """

    name: str
    place: int
    dtype: str
    prepare: Prepare | None = None
    shape: tuple[int, ...] | None = None
    sure: bool = False
    on_host: bool = False


@dataclass(frozen=True)
class Fetch:
    """One output of the session. `mark` is told of every result before it is handed out; `on_host` as of a feed.
    `over`: the argument whose memory it lies in, where the sizes of results are known before the call."""

    name: str
    dtype: str
    mark: Mark | None = None
    on_host: bool = False
    over: int | None = None


class TorchRunner:
    """Calls one session with torch tensors.

    `sizes` are the shapes of all outputs where they are known before the call, or a function that tells them from the
    arguments. `gpu` is where tensors lie that are not on the host. The call is one flat function, written for this
    session: under `torch.compile` every Python frame costs.
    """

    def __init__(
        self, session: Session, feeds: Sequence[Feed], fetches: Sequence[Fetch], sizes: Sizes | Shapes | None = None,
        gpu: Gpu | None = None,
    ) -> None:  # fmt: skip
        _check_types(session, feeds, fetches)
        self.session, self.gpu = session, gpu
        self.feeds = (*(f for f in feeds if f.dtype in _TYPES), *(f for f in feeds if f.dtype not in _TYPES))
        self.fetches = tuple(fetches)
        if gpu is None and any(fetch.dtype not in _TYPES for fetch in fetches):
            sizes = None
        self.sizes = sizes
        self.call: Callable[[Sequence[Any]], list[Any]] = _Writer(self, sizes).function()
        self.call.runner = self  # pyright: ignore[reportFunctionMemberAccess]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """All outputs of the session, in its order."""
        return self.call(args)

    def at(self, args: Sequence[Any], places: Sequence[int], marks: Sequence[Mark | None]) -> TorchRunner:
        """A runner for calls of the sizes of this one. Its arguments lie at `places`, its results get the marks."""
        feeds = [_at(feed, args, places) for feed in self.feeds]
        fetches = [
            replace(fetch, mark=mark, over=None if fetch.over is None else places[fetch.over])
            for fetch, mark in zip(self.fetches, marks, strict=True)
        ]
        sizes = self.sizes(args) if callable(self.sizes) else self.sizes
        return TorchRunner(self.session, feeds, fetches, sizes, self.gpu)


def runner_of(call: Callable[..., Any]) -> TorchRunner | None:
    """The runner whose function this is."""
    return getattr(call, "runner", None)


def _at(feed: Feed, args: Sequence[Any], places: Sequence[int]) -> Feed:
    """The feed for calls of the sizes of this one."""
    shape = tuple(args[feed.place].shape) if feed.sure and feed.shape is None else feed.shape
    return replace(feed, place=places[feed.place], shape=shape)


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
        from torch.autograd import profiler

        ort, session = cast("Any", onnxruntime), cast("Any", runner.session)
        native, private = ort.capi._pybind_state, cast("Any", torch._C)  # pyright: ignore[reportPrivateUsage]
        host = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        self.gpu = runner.gpu
        device = host if self.gpu is None else self.gpu.ort_device(native)
        # A GPU's tensors go by address whatever their type: a binding takes the type's number.
        known = _NUMBERS if self.gpu is not None else _TYPES
        self.plain = [feed for feed in runner.feeds if feed.dtype in known]
        self.foreign = [feed for feed in runner.feeds if feed.dtype not in known]
        self.fetches = runner.fetches
        self.sizes = sizes
        self.binds = self._can_bind(runner)
        self.session, self.make_binding = session._sess, native.SessionIOBinding
        self.space: dict[str, Any] = {
            "vector": native.OrtValueVector,
            "run": session._sess.run_with_ortvaluevector,
            "run_bound": session._sess.run_with_iobinding,
            "options": _run_options(ort, waits=self.gpu is None or any(fetch.on_host for fetch in runner.fetches)),
            "profiler": profiler,
            "to_dlpack": private._to_dlpack,
            "from_dlpack": private._from_dlpack,
            "empty": _allocator() if self.gpu is None else _allocator_on(self.gpu.device),
            "empty_on_host": _allocator(),
            "host": host,
            "in_names": [feed.name for feed in runner.feeds],
            "in_types": [_TYPES.get(feed.dtype) for feed in self.plain],
            "in_devices": [device] * len(self.plain),
            "out_names": [fetch.name for fetch in self.fetches],
            "out_types": [_TYPES.get(fetch.dtype) for fetch in self.fetches],
            "out_devices": [device] * len(self.fetches),
            "device": device,
        }
        self.space |= {f"i{at}": getattr(torch, feed.dtype) for at, feed in enumerate((*self.plain, *self.foreign))}
        self.space |= {f"d{at}": getattr(torch, fetch.dtype) for at, fetch in enumerate(self.fetches)}

    def _can_bind(self, runner: TorchRunner) -> bool:
        """Whether all memory of a call is known before it, and is the session's own kind."""
        if self.gpu is not None:
            return True
        known = bool(self.sizes is not None and self.fetches) and not self.foreign
        return known and list(runner.session.get_providers()) == ["CPUExecutionProvider"]

    def function(self) -> Callable[[Sequence[Any]], list[Any]]:
        run = self._bound() if self.binds else [*self._given(), *self._made()]
        lines = ["def call(args):", *(f"    {line}" for line in (*self._taken(), *run, *self._finished()))]
        exec("\n".join(lines), self.space)  # noqa: S102 - the text is made above, of numbers and our own names
        return self.space["call"]

    def _taken(self) -> list[str]:
        """The arguments as tensors of the session's types, dense."""
        lines: list[str] = []
        for at, feed in enumerate((*self.plain, *self.foreign)):
            text = f"args[{feed.place}]"
            if feed.prepare is not None:
                self.space[f"prepare{at}"] = feed.prepare
                text = f"prepare{at}({text})"
            lines.append(f"a{at} = {text}")
            if feed.sure:
                continue
            lines += [
                # What torch computes is not always of the type that its tracing foretold (statistics of mixed types).
                f"if a{at}.dtype is not i{at}: a{at} = a{at}.to(i{at})",
                f"if not a{at}.is_contiguous(): a{at} = a{at}.contiguous()",
            ]
        return lines

    def _bound(self) -> list[str]:
        """Run over a binding, which says where inputs and outputs lie and how large they are, and owns nothing.

        It is kept with what it was told last, since most memory comes again: what differs is told anew. A binding
        serves one call at a time; a call that runs while others do has another.
        """
        count = len(self.plain)
        if self.sizes is None:
            return self._bound_unknown()
        small = self._small_sizes()
        lines = self._made_now() if small is None else self._made_ahead(small)
        for at, feed in enumerate(self.plain):
            lines += self._input_told(at, feed)
        if small is None:
            for at, fetch in enumerate(self.fetches):
                lines += self._told(count + at, "bound[2]", f"r{at}.data_ptr(), s{at}", fetch)
        return [*lines, *self._ordered(_in_range("run_bound(bound[0], options)")), "done(bound)"]

    def _bound_unknown(self) -> list[str]:
        """The session makes the results, on the GPU, and uses their memory again: what is handed out are copies."""
        lines = self._binding_taken()
        for at, feed in enumerate(self.plain):
            lines += self._input_told(at, feed)
        run = _in_range("run_bound(bound[0], options)")
        run.append("taken = bound[0].get_outputs()")
        for at, fetch in enumerate(self.fetches):
            self.space[f"m{at}"] = fetch.name
            lines.append(f"bound[2](m{at}, {_device_name(fetch)})")
            view = f".view(d{at})" if fetch.dtype == "bool" else ""
            run.append(f"r{at} = owned(from_dlpack(taken.dlpack_at({at})){view})")
        self.space["owned"] = self._queue().owned
        return [*lines, *self._ordered([*run, "del taken", "bound[0].clear_binding_outputs()"]), "done(bound)"]

    def _ordered(self, run: list[str]) -> list[str]:
        """On a GPU: after what torch has launched, and before what it will launch."""
        if self.gpu is None:
            return run
        queue = self._queue()
        self.space |= {"enter": queue.enter, "leave": queue.leave}
        return ["here = enter()", "try:", *(f"    {line}" for line in run), "finally: leave(here)"]

    def _queue(self) -> Queue:
        assert self.gpu is not None
        return queue_of(self.gpu)

    def _input_told(self, at: int, feed: Feed) -> list[str]:
        if feed.shape is None:
            return self._told(at, "bound[1]", f"a{at}.data_ptr(), a{at}.shape", feed)
        self.space |= {f"n{at}": feed.name, f"k{at}": _NUMBERS[feed.dtype], f"z{at}": feed.shape}
        return [
            f"w = a{at}.data_ptr()",
            f"if w != bound[{at + 3}]:",
            f"    bound[1](n{at}, {_device_name(feed)}, k{at}, z{at}, w or {_SOME_ADDRESS})",
            f"    bound[{at + 3}] = w",
        ]

    def _told(self, at: int, tell: str, where: str, slot: Feed | Fetch) -> list[str]:
        self.space |= {f"n{at}": slot.name, f"k{at}": _NUMBERS[slot.dtype]}
        return [
            f"w = ({where})",
            f"if w != bound[{at + 3}]:",
            f"    {tell}(n{at}, {_device_name(slot)}, k{at}, w[1], w[0] or {_SOME_ADDRESS})",
            f"    bound[{at + 3}] = w",
        ]

    def _made_now(self) -> list[str]:
        return [*self._allocated(), *self._binding_taken()]

    def _binding_taken(self) -> list[str]:
        idle: list[list[Any]] = []
        self.space |= {"idle": idle.pop, "done": idle.append, "fresh": self.fresh}
        return ["try: bound = idle()", "except IndexError: bound = fresh()"]

    def _made_ahead(self, sizes: Shapes) -> list[str]:
        """Small results are made and bound several at a time: what is done in a row costs a third of what it costs
        between two calls of another kind, which is what `torch.compile` makes of it."""
        store = _Ahead(self, sizes)
        self.space |= {"ready": store.ready, "mode": store.mode, "more": store.more, "done": store.idle.append}
        names = "".join(f"r{at}, " for at in range(len(self.fetches)))
        return [f"try: bound, {names}= ready[mode()].pop()", f"except IndexError: bound, {names}= more()"]

    def _small_sizes(self) -> Shapes | None:
        """The sizes of all results where they are few, fixed and small, and in memory that no stream orders."""
        if self.gpu is not None or callable(self.sizes) or self.sizes is None or len(self.fetches) > _FEW:
            return None
        if any(fetch.over is not None for fetch in self.fetches):
            return None
        return self.sizes if all(0 < prod(shape) <= _SMALL for shape in self.sizes) else None

    def fresh(self) -> list[Any]:
        """A binding that knows nothing yet: itself, how it is told of inputs and outputs, and what it was told last."""
        binding = self.make_binding(self.session)
        return [binding, binding.bind_input, binding.bind_output, *([None] * (len(self.plain) + len(self.fetches)))]

    def _given(self) -> list[str]:
        """The arguments as values of ONNX Runtime's, over their own memory."""
        lines = ["given = vector()", *self._wrapped("given", [f"a{at}" for at in range(len(self.plain))], "in")]
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
            return ["taken = vector()", *_in_range(call), *taken, *views]
        shapes = f"[{', '.join(f's{at}' for at in range(count))}]"
        lines = [
            *self._allocated(),
            "taken = vector()",
            *self._wrapped("taken", [f"r{at}" for at in range(count)], "out", shapes),
        ]
        return [*lines, *_in_range(call)]

    def _allocated(self) -> list[str]:
        """Memory of torch's own for every result."""
        lines: list[str] = []
        if callable(self.sizes):
            self.space["sizes"], self.space["row_major"] = self.sizes, _row_major
            lines.append("".join(f"s{at}, " for at in range(len(self.fetches))) + "= sizes(args)")
            made = [f"{_empty_name(fetch)}(s{at}, row_major(s{at}), d{at})" for at, fetch in enumerate(self.fetches)]
            return lines + [f"r{at} = {self._over(at) or text}" for at, text in enumerate(made)]
        for at, shape in enumerate(self.sizes or ()):
            self.space[f"s{at}"], self.space[f"t{at}"] = tuple(shape), _row_major(tuple(shape))
            made_anew = f"{_empty_name(self.fetches[at])}(s{at}, t{at}, d{at})"
            lines.append(f"r{at} = {self._over(at) or made_anew}")
        return lines

    def _over(self, at: int) -> str:
        """The argument that a result is written over; empty where it has memory of its own, as on a GPU."""
        place = self.fetches[at].over if self.gpu is None else None
        found = (n for n, feed in enumerate((*self.plain, *self.foreign)) if feed.place == place)
        return "" if place is None else next((f"a{n}" for n in found), "")

    def _finished(self) -> list[str]:
        lines: list[str] = []
        for at, fetch in enumerate(self.fetches):
            if fetch.mark is not None and "ready" not in self.space:
                self.space[f"mark{at}"] = fetch.mark
                lines.append(f"mark{at}(r{at})")
        return [*lines, f"return [{', '.join(f'r{at}' for at in range(len(self.fetches)))}]"]


def _device_name(slot: Feed | Fetch) -> str:
    return "host" if slot.on_host else "device"


def _empty_name(fetch: Fetch) -> str:
    return "empty_on_host" if fetch.on_host else "empty"


def _run_options(ort: Any, *, waits: bool) -> Any:
    """Results on a GPU are ordered by its stream: a run that does not wait returns when all is launched."""
    made = ort.RunOptions()
    for key, value in () if waits else RUN_CONFIG.items():
        made.add_run_config_entry(key, value)
    return made


def _in_range(call: str) -> list[str]:
    """The line that runs the session: a range of its own while torch's profiler runs."""
    return [
        f"if not profiler._is_profiler_enabled: {call}",
        "else:",
        f"    with profiler.record_function('smelt.run'): {call}",
    ]


class _Ahead:
    """Results of fixed sizes for calls to come, each bound already, and the bindings whose results are given away.

    A tensor made in inference mode is another than one made outside of it: `ready` has a list for either.
    """

    def __init__(self, writer: _Writer, sizes: Shapes) -> None:
        import torch

        self._fresh, self._empty, self._device = writer.fresh, writer.space["empty"], writer.space["device"]
        kinds = [(fetch.name, _NUMBERS[fetch.dtype], getattr(torch, fetch.dtype)) for fetch in writer.fetches]
        shapes = [(tuple(shape), _row_major(tuple(shape))) for shape in sizes]
        self._wanted = list(zip(kinds, shapes, [fetch.mark for fetch in writer.fetches], strict=True))
        self.mode = torch.is_inference_mode_enabled
        self.ready: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] = ([], [])
        self.idle: list[list[Any]] = []

    def more(self) -> tuple[Any, ...]:
        """A binding and its results, for the call that found none; others are laid by."""
        empty, device, idle = self._empty, self._device, self.idle
        made: list[tuple[Any, ...]] = []
        for _ in range(_AHEAD):
            try:
                bound = idle.pop()
            except IndexError:
                bound = self._fresh()
            one, tell = [bound], bound[2]
            for (name, kind, dtype), (shape, strides), mark in self._wanted:
                result = empty(shape, strides, dtype)
                tell(name, device, kind, shape, result.data_ptr())
                if mark is not None:
                    mark(result)
                one.append(result)
            made.append(tuple(one))
        self.ready[self.mode()].extend(made[1:])
        return made[0]


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


def _allocator_on(device: str) -> Callable[[Sequence[int], Sequence[int], Any], Any]:
    import torch

    return lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype, device=device)


@lru_cache(maxsize=1024)
def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * (shape[axis + 1] or 1)
    return tuple(strides)
