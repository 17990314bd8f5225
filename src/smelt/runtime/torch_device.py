"""A GPU as torch and ONNX Runtime share it: where tensors lie, and the stream that orders the calls of sessions.

Input: a device of torch's, and the knob of the stand-in. Output: `Gpu`; its `Queue`, one per device and process.
Invariant: a session's launches come after all that torch has launched on its current stream, and before all that it
launches there later; nothing waits on the host; the thread's current device is afterwards what it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from smelt.base.config import Config

_PROVIDERS: Final = {"cuda": "CUDAExecutionProvider", "rocm": "ROCMExecutionProvider"}
_PACKAGES: Final = {"cuda": "onnxruntime-gpu", "rocm": "onnxruntime-rocm"}
_CPU: Final = "CPUExecutionProvider"
# A run returns when its kernels are launched; what follows on torch's stream waits for them there.
RUN_CONFIG: Final = {"disable_synchronize_execution_providers": "1"}


@dataclass(frozen=True)
class Gpu:
    """`kind`: cuda or rocm, which torch both calls cuda. `pretended`: its memory is the host's, and the CPU provider
    runs its kernels, on a driver for tests."""

    kind: str
    index: int
    pretended: bool = False

    @property
    def device(self) -> str:
        """torch's name of it."""
        return "cpu" if self.pretended else f"cuda:{self.index}"

    def missing(self) -> str:
        """Why no session runs on it here; nothing where one does."""
        from smelt.runtime.session import available_providers

        provider = _PROVIDERS[self.kind]
        if self.pretended or provider in available_providers():
            return ""
        return f"this onnxruntime has no {provider}: pip install {_PACKAGES[self.kind]}"

    def providers(self, given: tuple[str | tuple[str, Mapping[str, Any]], ...]) -> tuple[Any, ...]:
        """Of a session on this GPU: what the user named, with the device and torch's stream."""
        if self.pretended:
            return (_CPU,)
        own = _PROVIDERS[self.kind]
        where = {"device_id": str(self.index), "user_compute_stream": str(queue_of(self).handle)}
        named = {p if isinstance(p, str) else p[0]: {} if isinstance(p, str) else dict(p[1]) for p in given}
        return (own, {**named.pop(own, {}), **where}), *((n, o) for n, o in named.items() if n != _CPU), _CPU

    def takes(self, given: tuple[str | tuple[str, Mapping[str, Any]], ...]) -> bool:
        """Whether the providers that the user named are for this GPU, if any were."""
        return not given or _PROVIDERS[self.kind] in [p if isinstance(p, str) else p[0] for p in given]

    def ort_device(self, native: Any) -> Any:
        """What a binding is told of its tensors."""
        kind, index = (native.OrtDevice.cpu(), 0) if self.pretended else (native.OrtDevice.cuda(), self.index)
        return native.OrtDevice(kind, native.OrtDevice.default_memory(), index)


class Queue:
    """A stream of torch's own that the sessions of one GPU run on.

    Sessions are told of a stream when they are made, and torch's current one may be another in each call. A default
    stream cannot be told at all: to ONNX Runtime its number, 0, is no stream.
    """

    def __init__(self, gpu: Gpu, stream: Any = None) -> None:
        import torch

        self._cuda, self._index = cast("Any", torch).cuda, gpu.index
        self._stream = stream if stream is not None else self._cuda.Stream(device=gpu.index)
        self.handle = int(self._stream.cuda_stream)

    def enter(self) -> int:
        """Before a run: wait for what was launched. Returns the thread's device, which a run changes."""
        current = self._cuda.current_stream(self._index)
        if current.cuda_stream != self.handle:
            self._stream.wait_stream(current)
        return int(self._cuda.current_device())

    def leave(self, device: int) -> None:
        """After a run, whether it failed or not: later launches wait for it."""
        if self._cuda.current_device() != device:
            self._cuda.set_device(device)
        current = self._cuda.current_stream(self._index)
        if current.cuda_stream != self.handle:
            current.wait_stream(self._stream)

    def owned(self, tensor: Any) -> Any:
        """A copy in torch's memory of what lies in a session's, which the session may use again in this stream."""
        with self._cuda.stream(self._stream):
            made = tensor.clone()
        if made.is_cuda:
            made.record_stream(self._cuda.current_stream(self._index))
        return made


class HostQueue(Queue):
    """Of a pretended GPU, whose launches are done when they return."""

    def __init__(self) -> None:
        self.handle = 0

    def enter(self) -> int:
        return 0

    def leave(self, device: int) -> None:
        pass

    def owned(self, tensor: Any) -> Any:
        return tensor.clone()


@cache
def queue_of(gpu: Gpu) -> Queue:
    return HostQueue() if gpu.pretended else Queue(gpu)


def gpu_of(device: Any, config: Config) -> Gpu | None:
    """The GPU that a device of torch's is; None for other devices."""
    if device.type != "cuda":
        return None
    import torch

    kind = "rocm" if getattr(torch.version, "hip", None) else "cuda"
    if config.device_stand_in in _PROVIDERS:
        return Gpu(config.device_stand_in, device.index or 0, pretended=True)
    return Gpu(kind, device.index or 0)
