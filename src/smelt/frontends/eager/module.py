"""`torch.ort`: what PyTorch and users expect of a device's module.

Input: calls. Output: answers. Invariant: the device runs on the caller's thread, so there is nothing to wait for; its
random numbers are those of the CPU's generator, so that a seed gives the same numbers on both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import torch

from . import providers
from .registered import in_use

_frame: Final[Any] = vars(sys)["_getframe"]
_CHOOSERS: Final = ("torch.accelerator", "torch._utils")  # the second for nn.DataParallel


class DeviceContext:
    """`with torch.ort.device(1): ...`"""

    def __init__(self, device: Any) -> None:
        self._index = _index(device)
        self._before = -1

    def __enter__(self) -> None:
        self._before = providers.exchange_device(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        providers.exchange_device(self._before)


class StreamContext:
    """`with torch.ort.stream(...): ...`: there is one order of execution, that of the calls."""

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class TorchModule:
    """The device `ort`: tensors whose ops run one by one in ONNX Runtime."""

    device = DeviceContext
    stream = StreamContext

    def device_of(self, tensor: torch.Tensor) -> DeviceContext:
        """The device of a tensor becomes current; that of a tensor elsewhere changes nothing."""
        return DeviceContext(tensor.device if tensor.device.type == "ort" else None)

    def is_available(self) -> bool:
        return not _chooses_by_itself() or in_use()

    def is_initialized(self) -> bool:
        return True

    def init(self) -> None:
        return None

    def device_count(self) -> int:
        return providers.device_count() if not _chooses_by_itself() or in_use() else 0

    def current_device(self) -> int:
        return providers.current_device()

    def set_device(self, device: Any) -> None:
        providers.exchange_device(_index(device))

    def exchange_device(self, device: int) -> int:
        """Make another index current; the one before is returned. A negative one changes nothing."""
        return providers.exchange_device(_index(device)) if device >= 0 else providers.current_device()

    def maybe_exchange_device(self, device: int) -> int:
        return self.exchange_device(device)

    def synchronize(self, _device: Any = None) -> None:
        return None

    def current_stream(self, device: Any = None) -> torch.Stream:
        return torch.Stream(torch.device("ort", _index(device)))

    def default_stream(self, device: Any = None) -> torch.Stream:
        return self.current_stream(device)

    def set_stream(self, _stream: Any) -> None:
        return None

    def can_device_access_peer(self, device: Any, peer: Any) -> bool:
        return _index(device) >= 0 and _index(peer) >= 0

    def is_bf16_supported(self, *_: Any) -> bool:
        """The CPU computes in it where ONNX Runtime cannot."""
        return True

    def empty_cache(self) -> None:
        return None

    def get_device_name(self, device: Any = None) -> str:
        found = providers.placement(_index(device))
        return f"ONNX Runtime, {found.provider}"

    def get_device_properties(self, device: Any = None) -> providers.Placement:
        return providers.placement(_index(device))

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(int(seed))

    def seed_all(self) -> int:
        return self.seed()

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [torch.get_rng_state()]

    def set_rng_state_all(self, states: Sequence[torch.Tensor]) -> None:
        self.set_rng_state(states[0])

    def get_device_capability(self, device: Any = None) -> dict[str, str]:
        """The provider and its options."""
        found = providers.placement(_index(device))
        return {"provider": found.provider, **found.options}

    def manual_seed_all(self, seed: int) -> None:
        self.manual_seed(seed)

    def seed(self) -> int:
        return torch.default_generator.seed()

    def initial_seed(self) -> int:
        return torch.default_generator.initial_seed()

    def get_rng_state(self, _device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, _device: Any = None) -> None:
        torch.set_rng_state(state.cpu())

    def _is_in_bad_fork(self) -> bool:
        return False


def _chooses_by_itself() -> bool:
    """Whether PyTorch asks in order to find a device that nobody named.

    The device is slower than the CPU, so that such a choice would slow down programs in which it is merely installed.
    """
    # A frame in a variable would keep itself alive, and with it the tensors of all its callers.
    return _frame(2).f_globals.get("__name__") in _CHOOSERS


def _index(device: Any) -> int:
    if device is None:
        return providers.current_device()
    if isinstance(device, int):
        index = device
    else:
        index = providers.index_of_device(torch.device(device))
    providers.placement(index)
    return index
