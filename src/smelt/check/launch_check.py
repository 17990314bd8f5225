"""Users' Triton kernels against their references, by Triton's interpreter.

Input: functions that have code for a GPU. Output: a note for each; one that differs from its reference, raises, writes
where it must not or gives other bits the second time is a `KernelError`. Invariant: the launches are those that the
artifact makes, at several sizes of what the model leaves open; they run in a process of their own, with a time limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from smelt.base.config import Config, child_environment
from smelt.base.dtype import BY_NAME
from smelt.base.errors import KernelError
from smelt.check.contract import Comparison, compare_all
from smelt.ir.kernel import Function, Ix
from smelt.ir.kernel.device import DeviceArgument, DeviceCode, DeviceLaunch, DevicePointer, DeviceSize
from smelt.ir.kernel.index import evaluate

WORKER: Final = Path(__file__).parent / "launch_worker.py"
SIZES: Final = ((5, 3, 7, 2), (1, 1, 1, 1), (40, 33, 17, 6))  # of open sizes, in the order of their names
MOST_ELEMENTS: Final = 1 << 22
Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]


def check_launches(functions: Iterable[Function], config: Config) -> tuple[str, ...]:
    """A note for each distinct kernel."""
    distinct = {_key(one): one for one in functions if one.device is not None}
    return tuple(_checked(one, config) for one in distinct.values())


def _key(function: Function) -> str:
    device = function.device
    assert device is not None
    return repr((device.launches, [(t.shape, t.dtype) for t in function.operands if t is not None], function.factors))


def _checked(function: Function, config: Config) -> str:
    device = function.device
    assert device is not None
    title, worst, count = device.launches[0].title, 0.0, 0
    for sizes in _bindings(function):
        found = _compared(function, device, sizes, config)
        if found.problem:
            at = ", ".join(f"{name.rpartition(':')[2]} = {size}" for name, size in sizes.items()) or "the model's sizes"
            raise KernelError(
                "SM-KERNEL-003", f"kernel {title}: its Triton code differs from its reference: {found.problem}",
                hint=f"By Triton's interpreter, with {at}.",
            )  # fmt: skip
        worst, count = max(worst, found.error), count + 1
    if not count:
        return f"The Triton code of {title} was not verified: its sizes are too large for the interpreter."
    return f"The Triton code of {title} was verified by the interpreter: error {worst:.1e} ({count} sets of sizes)."


def _bindings(function: Function) -> Iterator[dict[str, int]]:
    symbols = sorted({name for t in function.operands if t is not None for size in t.shape for name in _free(size)})
    for chosen in SIZES if symbols else SIZES[:1]:
        sizes = {name: chosen[place % len(chosen)] for place, name in enumerate(symbols)}
        shapes = [t.shape for t in function.operands if t is not None]
        counts = [int(np.prod([_number(size, sizes) for size in shape], dtype=np.int64)) for shape in shapes]
        if all(0 <= count <= MOST_ELEMENTS for count in counts):
            yield sizes


def _free(size: Ix) -> Iterator[str]:
    """Of a size that others are broadcast to, theirs."""
    for symbol in size.syms:
        if symbol.members:
            for member in symbol.members:
                yield from _free(member)
        else:
            yield symbol.name


def _number(size: Ix, sizes: Sizes) -> int:
    return evaluate(size, sizes)


def _compared(function: Function, device: DeviceCode, sizes: Sizes, config: Config) -> Comparison:
    operands = _operands(function, sizes)
    wide = [np.asarray(x, np.float64) if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else x for x in operands]
    numbers = [_number(size, sizes) for size in function.numbers]
    try:
        wanted = function.reference(wide, numbers, function.factors)
    except Exception as error:
        title = device.launches[0].title
        raise KernelError("SM-KERNEL-004", f"the reference of kernel {title} failed: {error}") from error
    found = _run(function, device, operands, sizes, config)
    for place, (result, reference) in enumerate(zip(found, wanted, strict=False)):
        if result.shape != np.shape(reference):
            return Comparison(problem=f"result {place} has the shape {result.shape}, not {np.shape(reference)}")
    return compare_all(found, [np.asarray(one) for one in wanted], None, "product")


def _operands(function: Function, sizes: Sizes) -> list[Array]:
    rng = np.random.default_rng(0)
    made: list[Array] = []
    for tensor in function.operands:
        assert tensor is not None
        shape = tuple(_number(size, sizes) for size in tensor.shape)
        dtype = BY_NAME[tensor.dtype]
        plain = rng.standard_normal(shape) if dtype.kind == "float" else rng.integers(0, 2, shape)
        made.append(np.asarray(plain).astype(dtype.numpy))
    return made


def _run(
    function: Function, device: DeviceCode, operands: Sequence[Array], sizes: Sizes, config: Config
) -> list[Array]:
    shapes = [(tuple(_number(size, sizes) for size in shape), dtype) for shape, dtype in function.results]
    memory = [_memory(f"operand {n}", x.shape, str(x.dtype), f"operand{n}.npy") for n, x in enumerate(operands)]
    memory = [{**one, "torch": BY_NAME[t.dtype].torch} for one, t in zip(memory, function.operands, strict=True) if t]
    memory += [_memory(f"result {n}", shape, dtype) for n, (shape, dtype) in enumerate(shapes)]
    for n, (shape, dtype) in enumerate(device.temporaries):
        memory.append(_memory(f"temporary {n}", tuple(_number(size, sizes) for size in shape), dtype))
    with TemporaryDirectory(prefix="smelt-launch-") as name:
        folder = Path(name)
        for place, array in enumerate(operands):
            np.save(folder / f"operand{place}.npy", np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        launches = [_launch(one, place, folder, sizes) for place, one in enumerate(device.launches)]
        results = [len(operands) + place for place in range(len(shapes))]
        job = {"memory": memory, "launches": launches, "results": results}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        _worked(device.launches[0].title, folder, config)
        bytes_ = [np.load(folder / f"result{place}.npy") for place in results]
    return [one.view(BY_NAME[dtype].numpy).reshape(shape) for one, (shape, dtype) in zip(bytes_, shapes, strict=True)]


def _memory(name: str, shape: Sequence[int], dtype: str, file: str = "") -> dict[str, Any]:
    known = BY_NAME.get(dtype)
    each = known.bytes if known is not None else np.dtype(dtype).itemsize
    count = int(np.prod(shape, dtype=np.int64))
    return {"name": name, "bytes": count * each, "torch": known.torch if known is not None else "", "file": file}


def _launch(launch: DeviceLaunch, place: int, folder: Path, sizes: Sizes) -> dict[str, Any]:
    module = f"launch{place}.py"
    (folder / module).write_text(launch.text, encoding="utf-8")
    return {
        "module": module, "function": launch.function, "constants": dict(launch.constants),
        "grid": [max(0, _number(size, sizes)) for size in launch.grid],
        "arguments": [_argument(one, sizes) for one in launch.arguments],
    }  # fmt: skip


def _argument(one: DeviceArgument, sizes: Sizes) -> dict[str, Any]:
    if isinstance(one, DevicePointer):
        return {"name": one.name, "place": one.place, "offset": _number(one.offset, sizes)}
    if isinstance(one, DeviceSize):
        return {"name": one.name, "value": _number(one.value, sizes)}
    return {"name": one.name, "value": bool(one.value) if one.type == "i1" else one.value}


def _worked(title: str, folder: Path, config: Config) -> None:
    command = [sys.executable, "-W", "ignore", str(WORKER), str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=config.verify_timeout_s,
            env=child_environment({"TRITON_INTERPRET": "1"}),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KernelError(
            "SM-KERNEL-003", f"kernel {title}: its Triton code did not end within {config.verify_timeout_s:g} s"
        ) from None
    said = folder / "said.json"
    if not said.exists():
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise KernelError("SM-KERNEL-003", f"kernel {title}: its Triton code ended the interpreter: {last}")
    problem = json.loads(said.read_text(encoding="utf-8"))
    if problem:
        raise KernelError("SM-KERNEL-003", f"kernel {title}: its Triton code failed in the interpreter: {problem}")
