"""How a call on `ort` runs: in ONNX Runtime where a program of it can be made, else on the CPU over the same memory.

Input: an op and its arguments. Output: its results on `ort`. Invariant: results, aliases, errors and their texts are
the CPU's; whatever a program cannot do in the same way is done by the CPU's own kernel and counted with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import torch

from . import tally
from ._internals import torch_c
from .aliases import resize, restride, retyped, whole_storage
from .hazards import look_at_values
from .memory import mirror_on_cpu, new_on_ort, on_cpu, on_ort
from .programs import REFUSED_DTYPES, Bound, NoProgramError, Programs, RefusedCallError, map_tensors, tensors_of
from .providers import index_of_device, placement, runtime_errors
from .sparse import placed

_Tensor: Final = torch.Tensor
_HELD_STRIDES: Final = 64
_storage: Final[Any] = torch_c._storage_address
# Ops that take tensors of several devices: copies, and indices, which may lie on the CPU.
_MIXED: Final = frozenset(
    ("_copy_from", "_copy_from_and_resize", "copy_", "index", "index_put", "index_put_", "_index_put_impl_", "set_")
)


def scan(args: Sequence[Any], parts: list[Any], tensors: list[torch.Tensor]) -> None:
    """Collect what two calls must share to run one program on the same sizes, and the tensors, in order."""
    for value in args:
        if isinstance(value, _Tensor):
            tensors.append(value)
            parts += (value.dtype, value.shape, value.get_device())
        elif value.__class__ is list or value.__class__ is tuple:
            parts += (value.__class__, len(value))
            scan(value, parts, tensors)
        else:
            parts += (value.__class__, value)


def index_of(tensors: Sequence[torch.Tensor]) -> int:
    """The index of the operands' device: the first that is not the CPU."""
    for tensor in tensors:
        if (index := tensor.get_device()) >= 0:
            return index
    return 0


class NativeOp:
    """The kernel of a functional op. `own`: it is not PyTorch's, so that the CPU has no kernel to compare with."""

    def __init__(self, op: Any, own: bool = False) -> None:
        self.op = op
        self.name = str(op)
        self.own = own
        self.programs = Programs(op, None if own else self._on_cpu)
        self._known = self.programs.by_call
        self._look = look_at_values(op)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            results, single = self.compute(args, kwargs)
        except NoProgramError as reason:
            return run_on_cpu(self.op, args, kwargs, str(reason))
        return results[0] if single else results

    def compute(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[torch.Tensor], bool]:
        """New tensors of `ort`; `NoProgramError` says why the CPU must do it."""
        parts: list[Any] = []
        tensors: list[torch.Tensor] = []
        scan(args, parts, tensors)
        if kwargs:
            if "device" in kwargs:
                kwargs = self._here(kwargs, index_of(tensors))
            for name in kwargs:
                parts.append(name)
                scan((kwargs[name],), parts, tensors)
        if self._look is not None and (reason := self._look(args, kwargs)) is not None:
            raise NoProgramError(reason)
        key = tuple(parts)
        bound = self._known.get(key)
        if bound.__class__ is not Bound:
            _check(self.op, tensors)
            bound = self.programs.find(key, args, kwargs, placement(index_of(tensors)))
        try:
            results, strides = _run(bound, tensors)  # pyright: ignore[reportArgumentType]
        except (RuntimeError, *runtime_errors()) as error:  # a wrong index, say: the CPU knows the right words
            raise NoProgramError(str(error).partition(" Status Message")[0]) from error
        if strides is not None and not self.own:
            results = self._with_strides(results, bound, strides, args, kwargs)  # pyright: ignore[reportArgumentType]
        tally.natives_by_op[self.name] += 1
        return results, bound.program.single  # pyright: ignore

    def _with_strides(
        self, results: list[torch.Tensor], bound: Bound, strides: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Results of arguments that are not contiguous, in the strides that the CPU's kernel gives them.

        The kernel itself is asked, once for sizes and strides.
        """
        if bound.shapes is None:
            return results
        wanted = bound.strides.get(strides)
        if wanted is None:
            if len(bound.strides) >= _HELD_STRIDES:
                bound.strides.clear()
            wanted = bound.strides[strides] = [tuple(t.stride()) for t in self._on_cpu(args, kwargs)]
        if len(wanted) != len(results):
            return results
        return [with_strides(result, stride) for result, stride in zip(results, wanted, strict=True)]

    def _on_cpu(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Results of the CPU's kernel. In half precision ONNX Runtime computes more than the CPU does."""
        mirrors = Mirrors(given := tensors_of((args, kwargs)))
        try:
            return tensors_of(self.op(*map_tensors(mirrors, args), **map_tensors(mirrors, kwargs)))
        except Exception as error:
            if any(t.dtype == torch.float16 for t in given):
                return []
            raise RefusedCallError("the CPU refuses the call") from error

    def _here(self, kwargs: Mapping[str, Any], index: int) -> dict[str, Any]:
        """The keywords without a device that is the operands' own."""
        device = kwargs["device"]
        if device is not None and (device.type != "ort" or index_of_device(device) != index):
            raise NoProgramError("the result is wanted on another device")
        return {name: value for name, value in kwargs.items() if name != "device"}


def _check(op: Any, tensors: Sequence[torch.Tensor]) -> None:
    check_devices(op, tensors)
    for tensor in tensors:
        if tensor.dtype in REFUSED_DTYPES:
            raise NoProgramError(f"ONNX Runtime's CPU kernels do not compute in {_short(tensor.dtype)}")
        if tensor.numel() == 0:
            raise NoProgramError("a tensor without elements")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise NoProgramError("a tensor that is not strided")


def check_devices(op: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Operands lie on one device; a CPU scalar is welcome everywhere."""
    name = op._schema.name.partition("::")[2]
    if name in _MIXED:
        if "index" in name and tensors[0].device.type == "cpu":
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu), not on "
                f"{next(t.device for t in tensors if t.device.type != 'cpu')}"
            )
        return
    devices = {t.device for t in tensors if not (t.dim() == 0 and t.device.type == "cpu")}
    if len(devices) > 1:
        first, second = sorted(str(d) for d in devices)[:2]
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {second} and {first}!"
        )


def with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The same numbers in other strides."""
    if tensor.stride() == strides:
        return tensor
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="cpu").copy_(on_cpu(tensor))
    return on_ort(made, tensor.get_device())


def _run(bound: Bound, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
    """The results, and the arguments' strides where these or those are not contiguous."""
    program = bound.program
    strides = tuple(t.stride() for t in tensors) if program.strided else None
    try:
        binding = program.spare.pop()
    except IndexError:
        binding = program.new_binding()
    device = program.device
    for name, code, place in program.inputs:
        tensor = tensors[place]
        if not tensor.is_contiguous():
            strides = strides or tuple(t.stride() for t in tensors)
            tensors[place] = tensor = (on_cpu(tensor) if tensor.get_device() >= 0 else tensor).contiguous()
        binding.bind_input(name, device, code, tensor.shape, tensor.data_ptr())
    if bound.shapes is None:
        return _first_run(bound, binding, program.index), strides
    results: list[torch.Tensor] = []
    for (name, code, dtype), shape in zip(program.outputs, bound.shapes, strict=True):
        made = new_on_ort(shape, dtype, program.word)
        binding.bind_output(name, device, code, shape, made.data_ptr())
        results.append(made)
    program.session.run_with_iobinding(binding, None)
    program.spare.append(binding)
    return results, strides


def _first_run(bound: Bound, binding: Any, index: int) -> list[torch.Tensor]:
    """Let ONNX Runtime find the sizes of the results."""
    program = bound.program
    for name, _, _ in program.outputs:
        binding.bind_output(name, program.device)
    program.session.run_with_iobinding(binding, None)
    values = binding.get_outputs()
    results = [on_ort(owned_tensor(values[place], dtype), index) for place, dtype in enumerate(program.dtypes)]
    if program.fixed and all(r.numel() for r in results):  # ONNX Runtime binds no memory of no bytes
        bound.shapes = tuple(tuple(r.shape) for r in results)
    return results


def owned_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor over an OrtValue's memory, which it keeps alive."""
    tensor: torch.Tensor = torch.from_dlpack(value.to_dlpack())
    return tensor.view(torch.bool) if dtype == torch.bool and tensor.dtype != torch.bool else tensor


class InPlaceOp:
    """The kernel of `op_`: the functional op, and its result written into the first argument."""

    def __init__(self, op: Any, native: NativeOp) -> None:
        self.op, self.native = op, native

    def __call__(self, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        try:
            if share_memory(self.op, target, tensors_of((args, kwargs))):
                raise NoProgramError("it reads memory that it writes")
            (result,), _ = self.native.compute((target, *args), kwargs)
        except NoProgramError as reason:
            return run_on_cpu(self.op, (target, *args), kwargs, str(reason))
        if result.shape != target.shape or not torch.can_cast(result.dtype, target.dtype):
            return run_on_cpu(self.op, (target, *args), kwargs, "")  # the CPU's kernel knows the right words
        on_cpu(target).copy_(on_cpu(result))
        return target


class OutOp:
    """The kernel of `op(..., out=)`: the functional op, and its results written to where they are wanted."""

    def __init__(self, op: Any, native: NativeOp) -> None:
        self.op, self.native = op, native
        self.outs = tuple(a.name for a in op._schema.arguments if a.is_out)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outs = tensors_of([kwargs[name] for name in self.outs])
        rest = {name: value for name, value in kwargs.items() if name not in self.outs}
        try:
            if any(share_memory(self.op, out, tensors_of((args, rest))) for out in outs):
                raise NoProgramError("it reads memory that it writes")
            results, _ = self.native.compute(args, rest)
        except NoProgramError as reason:
            return run_on_cpu(self.op, args, kwargs, str(reason))
        for out, result in zip(outs, results, strict=True):
            if out.get_device() != result.get_device():
                check_devices(self.op, [result, out.view(-1)])
        if any(r.dtype != o.dtype for r, o in zip(results, outs, strict=True)):
            return run_on_cpu(self.op, args, kwargs, "the result is wanted in another type")
        for out, result in zip(outs, results, strict=True):
            write_out(out, on_cpu(result))
        if not self.op._schema.returns:
            return None
        return outs[0] if len(self.op._schema.returns) == 1 else tuple(outs)


def share_memory(op: Any, target: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether what is read lies in the storage that is written: the CPU's kernel knows what is allowed then.

    Element by element, a tensor may be written over itself.
    """
    storage = _storage(target)
    for other in others:
        if other is target:
            if not is_pointwise(op):
                return True
        elif _storage(other) == storage:
            return True
    return False


@cache
def is_pointwise(op: Any) -> bool:
    return torch.Tag.pointwise in op.tags


def write_out(out: torch.Tensor, result: torch.Tensor) -> None:
    """A result of the same shape is written, an empty `out` is resized, any other is an error."""
    if out.shape != result.shape:
        if out.numel():
            raise RuntimeError(
                f"out= has the shape {list(out.shape)}, the result {list(result.shape)}: a tensor that is not empty is "
                "not resized on this device. Give an empty tensor or one of the result's shape."
            )
        resize(out, result.shape)
        restride(out, result.stride())
    on_cpu(out).copy_(result)


def run_on_cpu(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], reason: str) -> Any:
    """The CPU's kernel over the same memory."""
    tensors = tensors_of((args, kwargs))
    check_devices(op, tensors)
    index = index_of(tensors)
    outs = {a.name: kwargs[a.name] for a in op._schema.arguments if a.is_out and a.name in kwargs}
    read = tensors_of((args, {k: v for k, v in kwargs.items() if k not in outs}))
    plain = {name: value for name, value in kwargs.items() if name not in outs and name != "device"}
    if "device" in kwargs:
        index = index_of_device(kwargs["device"]) if kwargs["device"] is not None else index
    device = {"device": torch.device("cpu")} if "device" in kwargs else {}

    def attempt(to_cpu: Mirrors, room: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Any, dict[str, Any]]:
        made = {name: map_tensors(room, value) for name, value in outs.items()}
        return op(*map_tensors(to_cpu, args), **map_tensors(to_cpu, plain), **made, **device), made

    to_cpu = Mirrors(tensors)

    def room(out: torch.Tensor) -> torch.Tensor:
        return _room_for(op, out, read, to_cpu)

    try:
        result, fresh = attempt(to_cpu, room)
    except RuntimeError as error:
        if "not resizable" not in str(error):
            raise
        # What the first attempt was given may have other sizes by now, which its memory has not.
        copies = Mirrors(tensors, copied=True)
        result, fresh = attempt(copies, copies)
        _take_over(op, args, copies)
    if reason:
        tally.note_fallback(str(op), reason)
    for name, value in outs.items():
        for out, made in zip(tensors_of(value), tensors_of(fresh[name]), strict=True):
            if made.data_ptr() != out.data_ptr() or made.shape != out.shape:
                write_out(out, made)
    return _results(op, args, kwargs, result, index)


class Mirrors:
    """CPU tensors over the memory of a call's tensors. Those that share a storage share one on the CPU as well, so that
    its kernels see what overlaps. Memory under a second name cannot grow; `copied` memory can."""

    def __init__(self, tensors: Sequence[torch.Tensor], copied: bool = False) -> None:
        self._copied = copied
        self._uses = Counter(t.untyped_storage().data_ptr() for t in tensors)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._made: dict[int, torch.Tensor] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "cpu":
            return tensor
        if id(tensor) not in self._made:
            self._made[id(tensor)] = self._mirror(tensor)
        return self._made[id(tensor)]

    def _mirror(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = tensor.untyped_storage().data_ptr()
        if tensor.is_conj() or tensor.is_neg() or not memory or not (self._copied or self._uses[memory] > 1):
            return mirror_on_cpu(tensor).clone() if self._copied else mirror_on_cpu(tensor)
        if memory not in self._storages:
            whole = on_cpu(whole_storage(tensor))
            self._storages[memory] = (whole.clone() if self._copied else whole).untyped_storage()
        made = torch.empty(0, dtype=tensor.dtype)
        return made.set_(self._storages[memory], tensor.storage_offset(), tensor.shape, tensor.stride())


def _take_over(op: Any, args: Sequence[Any], copies: Mirrors) -> None:
    """What a call wrote to copies of its arguments, and the sizes that it gave them."""
    for argument, value in zip(op._schema.arguments, args, strict=False):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        for old in tensors_of([value]):
            new = copies(old)
            if new.shape != old.shape:
                resize(old, new.shape)
            on_cpu(old).copy_(new)


def _room_for(op: Any, out: torch.Tensor, read: Sequence[torch.Tensor], to_cpu: Mirrors) -> torch.Tensor:
    """A tensor of the type and shape; `out` itself where it shares memory with what is read, which may be forbidden."""
    return to_cpu(out) if share_memory(op, out, read) else torch.empty(out.shape, dtype=out.dtype)


def _results(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, index: int) -> Any:
    returns = op._schema.returns
    if len(returns) == 1 and not isinstance(result, tuple):
        return _result(op, returns[0], args, kwargs, result, index)
    if not isinstance(result, tuple):
        return result
    many = cast("tuple[Any, ...]", result)
    return tuple(_result(op, r, args, kwargs, one, index) for r, one in zip(returns, many, strict=True))


def _result(op: Any, declared: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, index: int) -> Any:
    """An argument that was written to is itself returned; a view becomes a view of the argument; the rest is new."""
    alias = declared.alias_info
    if alias is None:
        return map_tensors(lambda t: placed(t, index), result)
    source = _argument(op, alias, args, kwargs)
    if alias.is_write or source is None:
        return source
    return map_tensors(lambda t: _view_of(source, t), result)


def _argument(op: Any, alias: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & alias.before_set:
            return kwargs[argument.name] if argument.name in kwargs else args[place]
    return None


def _view_of(base: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    start = int(base.storage_offset()) * base.element_size() + int(seen.storage_offset()) * seen.element_size()
    if seen.dtype == base.dtype:
        return torch.as_strided(base, tuple(seen.shape), tuple(seen.stride()), start // base.element_size())
    return retyped(base, seen, start)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
