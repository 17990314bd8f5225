"""The device `ort` in PyTorch: its name, its module `torch.ort`, its kernels.

Input: PyTorch's table of ops and the exporter's. Output: registrations. Invariant: registering the name costs little
and imports nothing heavy, since it happens at `import torch`; kernels are registered with the first tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch.utils import backend_registration

from ._internals import torch_c
from .memory import on_ort
from .registered import REGISTERED

NAME: Final = "ort"
_KEY: Final = "PrivateUse1"
_libraries: list[Any] = []
_ready = threading.Lock()


def register() -> bool:
    """Make `torch.device("ort")` known. False if another package has taken PyTorch's one place for such a device."""
    with _ready:
        if "name" not in REGISTERED:
            REGISTERED["name"] = _register_name()
        return REGISTERED["name"]


def autoload() -> None:
    """What PyTorch calls as it is imported.

    PyTorch takes a device that is registered from outside for its accelerator. Where it has one of its own, the device
    waits for `smelt.eager`.
    """
    if not has_own_accelerator():
        register()


def has_own_accelerator() -> bool:
    """Whether PyTorch was built for a GPU and the system has a driver of one; no driver is asked."""
    kinds: Mapping[str, Any] = vars(torch.version)
    drivers = {"cuda": "/dev/nvidiactl", "hip": "/dev/kfd", "xpu": "/dev/dri"}
    found = any(kinds.get(kind) is not None and Path(driver).exists() for kind, driver in drivers.items())
    return found or torch.backends.mps.is_built()


def _register_name() -> bool:
    taken: str = torch_c._get_privateuse1_backend_name()
    if taken not in ("privateuseone", NAME):
        return False
    from .guard import teach_guard
    from .module import TorchModule
    from .sharing import pinned, teach_sharing
    from .storages import teach_storages

    setup: Any = vars(backend_registration)["_setup_privateuseone_for_python_backend"]
    guard: Any = vars(backend_registration)["_DummyDeviceGuard"]()
    teach_guard(guard)
    setup(NAME, backend_module=_as_module(TorchModule()), device_guard=guard)
    teach_storages()
    teach_sharing()
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, _KEY)
    library.impl("empty_strided", _empty_strided, _KEY)
    library.impl("_pin_memory", pinned, "CPU")
    _libraries.append(library)
    return True


def _as_module(functions: Any) -> ModuleType:
    """`torch.ort` is a module, so that `import torch.ort` and pickling by name work."""
    module = ModuleType(f"torch.{NAME}", type(functions).__doc__)
    for name in dir(functions):
        if not name.startswith("__"):
            setattr(module, name, getattr(functions, name))
    return module


def ensure_kernels() -> None:
    """Register all kernels, once."""
    if "kernels" in REGISTERED:
        return
    with _ready:
        if "kernels" not in REGISTERED:
            from .kernels import register_kernels

            _libraries.extend(register_kernels(_KEY))
            REGISTERED["kernels"] = True


def _empty(
    size: Sequence[int], dtype: torch.dtype | None = None, layout: torch.layout | None = None,
    device: torch.device | None = None, pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:  # fmt: skip
    _plain(layout, pin_memory)
    made = torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format)
    return on_ort(made, _placed(device))


def _empty_strided(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype | None = None, layout: torch.layout | None = None,
    device: torch.device | None = None, pin_memory: bool | None = None,
) -> torch.Tensor:  # fmt: skip
    _plain(layout, pin_memory)
    return on_ort(torch.empty_strided(size, stride, dtype=dtype, device="cpu"), _placed(device))


def _plain(layout: torch.layout | None, pin_memory: bool | None) -> None:
    if layout not in (None, torch.strided):
        raise NotImplementedError(f"the device ort has strided tensors only, not {layout}")
    if pin_memory:
        raise RuntimeError("memory of the device ort is plain memory and cannot be pinned")


def _placed(device: torch.device | None) -> int:
    from .providers import index_of_device, placement

    ensure_kernels()
    index = index_of_device(device)
    placement(index)
    return index
