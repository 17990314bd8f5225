"""`torch.ort`: what PyTorch and users expect of a device's module.

Input: calls. Output: answers. Invariant: the device runs on the caller's thread, so there is nothing to wait for; its
random numbers are those of the CPU's generator, so that a seed gives the same numbers on both.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from . import providers


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


class TorchModule:
    """The device `ort`: tensors whose ops run one by one in ONNX Runtime."""

    device = DeviceContext

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def init(self) -> None:
        return None

    def device_count(self) -> int:
        return providers.device_count()

    def current_device(self) -> int:
        return providers.current_device()

    def set_device(self, device: Any) -> None:
        providers.exchange_device(_index(device))

    def synchronize(self, _device: Any = None) -> None:
        return None

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


def _index(device: Any) -> int:
    if device is None:
        return providers.current_device()
    if isinstance(device, int):
        index = device
    else:
        index = torch.device(device).index or 0
    providers.placement(index)
    return index
