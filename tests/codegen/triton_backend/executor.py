"""Runs generated Triton kernels with Triton's interpreter, on memory whose bounds are checked.

Input: a kernel's module, a configuration, arrays and sizes. Output: the arrays, written. Invariant: a load or store
that a mask lets through lies inside of one of the kernel's own arrays, or it is an error; stores go to arrays that the
kernel says it writes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")

import numpy as np
import pytest

pytest.importorskip("triton", reason="the extra 'triton' is not installed")

import triton.language as tl
from triton.runtime import interpreter

_FOLDER = tempfile.TemporaryDirectory(prefix="smelt-triton-")
_TYPES = {"fp32": tl.float32, "fp64": tl.float64, "i1": tl.int1, "fp16": tl.float16, "bf16": tl.bfloat16, "i8": tl.int8,
          "i16": tl.int16, "i32": tl.int32, "i64": tl.int64, "u8": tl.uint8, "u16": tl.uint16, "u32": tl.uint32,
          "u64": tl.uint64}  # fmt: skip


class OutOfBounds(Exception):
    pass


def load_module(text: str, name: str) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    path = Path(_FOLDER.name) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def launch(
    function: Any, signature: Mapping[str, str], values: Sequence[float], constants: Mapping[str, Any],
    grid: tuple[int, int, int], memory: Sequence[tuple[int, int]], written: Sequence[tuple[int, int]],
) -> None:  # fmt: skip
    """`values` are addresses and sizes in the signature's order; `memory` and `written` are (address, bytes)."""
    given = {name: _argument(kind, value) for (name, kind), value in zip(signature.items(), values, strict=True)}
    given |= {name: _constant(value) for name, value in constants.items()}
    assert isinstance(function, interpreter.InterpretedFunction)
    body = function.rewrite()
    patched = interpreter._patch_lang(body)
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*grid)
    with _checked(memory, written), np.errstate(all="ignore"):
        try:
            for z, y, x in np.ndindex(*reversed(grid)):
                builder.set_grid_idx(x, y, z)
                body(**given)
        finally:
            patched.restore()


def _constant(value: Any) -> Any:
    """A type of Triton's comes as its name."""
    return getattr(tl, value[3:]) if isinstance(value, str) and value.startswith("tl.") else value


def _argument(kind: str, value: float) -> tl.tensor:
    if kind in ("fp32", "i1"):
        dtype, own = (np.float32, tl.float32) if kind == "fp32" else (np.bool_, tl.int1)
        return tl.tensor(interpreter.TensorHandle(np.array([value], dtype), own), own)
    if kind.startswith("*"):
        pointer = tl.pointer_type(_TYPES[kind[1:]])
        return tl.tensor(interpreter.TensorHandle(np.array([value], np.uint64), pointer), pointer)
    dtype = np.int32 if kind == "i32" else np.int64
    return tl.tensor(interpreter.TensorHandle(np.array([value], dtype), _TYPES[kind]), _TYPES[kind])


@contextmanager
def _checked(memory: Sequence[tuple[int, int]], written: Sequence[tuple[int, int]]) -> Iterator[None]:
    kind = interpreter.InterpreterBuilder
    load, store = kind.create_masked_load, kind.create_masked_store

    def checked_load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        _check(ptrs, mask, memory, "load")
        return load(self, ptrs, mask, *rest)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        _check(ptrs, mask, written, "store")
        return store(self, ptrs, value, mask, *rest)

    kind.create_masked_load, kind.create_masked_store = checked_load, checked_store
    try:
        yield
    finally:
        kind.create_masked_load, kind.create_masked_store = load, store


def _check(ptrs: Any, mask: Any, memory: Sequence[tuple[int, int]], what: str) -> None:
    places = np.broadcast_to(ptrs.data, np.broadcast_shapes(ptrs.data.shape, mask.data.shape))
    used = places[np.broadcast_to(mask.data.astype(bool), places.shape)]
    if not used.size:
        return
    size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
    inside = np.zeros(used.shape, bool)
    for start, count in memory:
        inside |= (used >= start) & (used + np.uint64(size) <= start + count)
    if not inside.all():
        raise OutOfBounds(f"{what} of {size} bytes at {int(used[~inside][0]):#x} is outside of {memory}")
