"""What PyTorch's C++ code asks of a device: how many there are, which is current, to wait.

Input: the guard that PyTorch makes for a device registered from Python. Output: the same guard with answers of this
package. Invariant: a method is replaced only at the place where the headers of the installed PyTorch say that it is;
without them the guard stays as it was: one device, number 0, has gradients. PyTorch's own guard knows one device and
cannot be taught by Python, so backward passes on `ort:1` would end in an assertion of its engine.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from . import providers

_HEADER: Final = "include/c10/core/impl/DeviceGuardImplInterface.h"
_VALUE_AT: Final = object.__basicsize__  # a wrapped C++ object's address follows Python's own part
_TYPE: Final = 20  # c10::DeviceType::PrivateUse1
_Word: Final = ctypes.c_void_p
_SIZE: Final = ctypes.sizeof(_Word)
_FRONT: Final = 2  # the offset to the top and the type's description lie before the methods
_DESTRUCTORS: Final = 2  # and these behind them
_kept: list[Any] = []


def _device(index: int) -> int:
    """A c10::Device: type and index, a byte each."""
    return _TYPE | index << 8


def _index(device: int) -> int:
    return ctypes.c_int8(device >> 8).value


def _count(_guard: int) -> int:
    """All that may ever be set up: the engine of backward passes starts its threads once."""
    return providers.MOST_DEVICES


def _current(_guard: int) -> int:
    return _device(providers.current_device())


def _exchange(_guard: int, device: int) -> int:
    index = _index(device)
    return _device(providers.exchange_device(index) if index >= 0 else providers.current_device())


def _set(_guard: int, device: int) -> None:
    _exchange(_guard, device)


def _wait(_guard: int, _index: int) -> None:
    """Every call is over when it returns."""


_Device: Final = ctypes.c_uint16
_METHODS: Final[dict[str, tuple[Any, Callable[..., Any]]]] = {
    "deviceCount": (ctypes.CFUNCTYPE(ctypes.c_int8, _Word), _count),
    "getDevice": (ctypes.CFUNCTYPE(_Device, _Word), _current),
    "exchangeDevice": (ctypes.CFUNCTYPE(_Device, _Word, _Device), _exchange),
    "setDevice": (ctypes.CFUNCTYPE(None, _Word, _Device), _set),
    "uncheckedSetDevice": (ctypes.CFUNCTYPE(None, _Word, _Device), _set),
    "synchronizeDevice": (ctypes.CFUNCTYPE(None, _Word, ctypes.c_int8), _wait),
}


def teach_guard(guard: Any) -> bool:
    """Put our methods into a guard. False where the installed PyTorch does not say where they belong."""
    places = _places()
    if not all(name in places for name in _METHODS):
        return False
    held = _word(id(guard) + _VALUE_AT)
    table = _word(held)
    if not _answers_as_known(table, places, held):
        return False
    copied = (_Word * (_FRONT + len(places) + _DESTRUCTORS))()
    ctypes.memmove(copied, table - _FRONT * _SIZE, ctypes.sizeof(copied))
    for name, (kind, method) in _METHODS.items():
        call = kind(method)
        _kept.append(call)
        copied[_FRONT + places[name]] = ctypes.cast(call, _Word).value
    _kept.extend((guard, copied))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))  # C++ may ask while the interpreter ends, when modules are gone
    _Word.from_address(held).value = ctypes.addressof(copied) + _FRONT * _SIZE
    return True


def _word(address: int) -> int:
    return _Word.from_address(address).value or 0


def _places() -> dict[str, int]:
    """The methods' places in the table, by the header that ships with PyTorch; the destructor's two come last."""
    header = Path(torch.__file__).parent / _HEADER
    try:
        text = header.read_text(encoding="utf-8")
    except OSError:
        return {}
    names = re.findall(r"^ {2}virtual [^(~;]*?(~?\w+)\(", text, re.MULTILINE)
    if [name.startswith("~") for name in names] != [False] * (len(names) - 1) + [True]:
        return {}
    return {name: place for place, name in enumerate(names[:-1])}


def _answers_as_known(table: int, places: dict[str, int], guard: int) -> bool:
    """The guard's own answers: one device, number 0."""

    def ask(name: str, result: Any) -> Any:
        return ctypes.CFUNCTYPE(result, _Word)(_word(table + places[name] * _SIZE))(guard)

    return ask("deviceCount", ctypes.c_int8) == 1 and ask("getDevice", _Device) == _device(0)
