"""Which execution provider a device index stands for.

Input: `set_device(index, provider, options)`. Output: a `Placement` per index, sessions made by it. Invariant: `ort`
and `ort:0` are ONNX Runtime's CPU provider unless set otherwise; any other index must be set up before it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from smelt.base.config import Config
from smelt.base.errors import ConfigError

from ._internals import runtime, runtime_state

if TYPE_CHECKING:
    import onnx_ir as ir

_CPU_PROVIDER: Final = "CPUExecutionProvider"
MOST_DEVICES: Final = 8  # PyTorch keeps a thread for the gradients of each


@dataclass(frozen=True)
class Placement:
    """A device index and the provider behind it."""

    index: int
    provider: str = _CPU_PROVIDER
    options: Mapping[str, str] = field(default_factory=dict[str, str])


def runtime_errors() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises for a model that it cannot take."""
    state = runtime_state()
    names = ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException", "InvalidProtobuf")
    return tuple(getattr(state, name) for name in names if hasattr(state, name))


_placements: dict[int, Placement] = {0: Placement(0)}


class _Current(threading.local):
    """The current index, of each thread its own as PyTorch's devices have it."""

    index = 0


_current = _Current()


def set_device(index: int, provider: str, options: Mapping[str, Any] | None = None) -> None:
    """Let `torch.device("ort", index)` stand for an execution provider, with its options.

    smelt.eager.set_device(1, "CPUExecutionProvider")
    """
    known = runtime().get_available_providers()
    if provider not in known:
        raise ConfigError(
            "SM-DEVICE-001", f"this onnxruntime has no provider {provider!r}", hint=f"It has {', '.join(known)}."
        )
    if not 0 <= index < MOST_DEVICES:
        raise ConfigError("SM-DEVICE-001", f"a device index lies in 0 to {MOST_DEVICES - 1}, not at {index}")
    _placements[index] = Placement(index, provider, {k: str(v) for k, v in (options or {}).items()})


def placement(index: int) -> Placement:
    found = _placements.get(index)
    if found is None:
        raise ConfigError(
            "SM-DEVICE-002", f"device ort:{index} was never set up",
            hint=f'Call smelt.eager.set_device({index}, "{_CPU_PROVIDER}") first.',
        )  # fmt: skip
    return found


def devices() -> dict[int, Placement]:
    """Every index that was set up."""
    return dict(sorted(_placements.items()))


def device_count() -> int:
    return max(_placements) + 1


def current_device() -> int:
    return _current.index


def index_of_device(device: Any) -> int:
    """The index that a device means: without one, the current."""
    given: int | None = device.index if device is not None else None
    return current_device() if given is None else given


def exchange_device(index: int) -> int:
    """Make another index current; the one before is returned."""
    old, _current.index = _current.index, index
    return old


def open_session(model: ir.Model, where: Placement) -> Any:
    """A session of a small model.

    It runs on the caller's thread unless SMELT_THREADS says otherwise: there are hundreds of such sessions, and a pool
    that sessions share would be forced on every other session of the process.
    """
    import onnx_ir

    settings = runtime().SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = Config.from_env().threads or 1
    session = runtime().InferenceSession(
        onnx_ir.to_proto(model).SerializeToString(), settings, providers=[(where.provider, dict(where.options))]
    )
    return session._sess


def host_memory() -> Any:
    """ONNX Runtime's name for plain memory."""
    state = runtime_state()
    return state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0)
