"""Kernels that are neither a program nor a call of the CPU's op with the same name.

Input: calls of PyTorch's own internals on the device. Output: `KERNELS`, and the rules of autocast. Invariant: each
entry says what PyTorch expects of a device at that place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from ._internals import torch_c
from .aliases import resize
from .calls import NativeOp, run_on_cpu
from .memory import mirror_on_cpu, on_cpu, on_ort
from .programs import NoProgramError
from .providers import index_of_device
from .tally import note_fallback

aten: Final[Any] = torch.ops.aten
_ANY_DEVICE: Final[Any] = torch_c.DispatchKey.CompositeExplicitAutograd


def _copy_from(source: torch.Tensor, target: torch.Tensor, *_: bool) -> torch.Tensor:
    """Copies between devices, or within this one: plain memory on both sides."""
    _plain(target).copy_(_plain(source))
    return target


def _copy_from_and_resize(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.shape != source.shape:
        resize(target, source.shape)
    return _copy_from(source, target)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return mirror_on_cpu(tensor) if tensor.device.type == "ort" else tensor


def _to_copy(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    """PyTorch would pin the memory of a copy that need not be waited for. Here every copy is waited for."""
    return aten._to_copy.default._op_dk(_ANY_DEVICE, tensor, **{**options, "non_blocking": False})


def _resize(
    tensor: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    return resize(tensor, size, memory_format)


def _item(tensor: torch.Tensor) -> Any:
    return aten._local_scalar_dense(on_cpu(tensor))


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.device != other.device:
        raise RuntimeError(f"Cannot compare two tensors on different devices. Got: {one.device} and {other.device}")
    return torch.equal(on_cpu(one), on_cpu(other))


_convolution: Final = NativeOp(aten.convolution.default)


def _convolve(*args: Any) -> torch.Tensor:
    try:
        return _convolution.compute(args, {})[0][0]
    except NoProgramError as reason:
        return run_on_cpu(aten.convolution.default, args, {}, str(reason))


_backward: Final = NativeOp(aten.convolution_backward.default)


def _convolve_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    biases = [weight.shape[1] * groups if transposed else weight.shape[0]]
    args = (grad, x, weight, biases, stride, padding, dilation, transposed, output_padding, groups, list(mask))
    if all(mask):
        try:
            return tuple(_backward.compute(args, {})[0])
        except NoProgramError as reason:
            return run_on_cpu(aten.convolution_backward.default, args, {}, str(reason))
    return run_on_cpu(aten.convolution_backward.default, args, {}, "not every gradient is wanted")


def _sdp_choice(*_args: Any, **_kwargs: Any) -> int:
    """Attention by its parts, each of which has a program."""
    return 0


def _zeros(size: Sequence[int], *, device: torch.device | None = None, **options: Any) -> torch.Tensor:
    """A gradient that is known to be zero: PyTorch's own devices give it no memory, here it has."""
    return on_ort(torch.zeros(size, dtype=options.get("dtype")), index_of_device(device))


def _record_stream(_tensor: torch.Tensor, _stream: torch.Stream) -> None:
    """Memory is not used behind the caller's back."""


def _pack(padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Sizes of batches stay on the CPU, as lengths are there, on every device."""
    data, sizes = aten._pack_padded_sequence(on_cpu(padded), lengths, batch_first)
    note_fallback(str(aten._pack_padded_sequence.default), "lengths are on the CPU")
    return on_ort(data, padded.get_device()), sizes


def _window(op: Any) -> Callable[..., torch.Tensor]:
    """PyTorch computes this window by a kernel of the device, which only its own devices have."""

    def kernel(*args: Any, **kwargs: Any) -> torch.Tensor:
        return run_on_cpu(op, args, kwargs, "it asks for no tensor")

    return kernel


_WINDOWS: Final = tuple(getattr(aten.kaiser_window, overload) for overload in aten.kaiser_window.overloads())
KERNELS: Final[tuple[tuple[Any, Callable[..., Any]], ...]] = (
    (aten._copy_from.default, _copy_from),
    (aten._copy_from_and_resize.default, _copy_from_and_resize),
    (aten._to_copy.default, _to_copy),
    (aten.resize_.default, _resize),
    (aten._local_scalar_dense.default, _item),
    (aten.equal.default, _equal),
    (aten.convolution_overrideable.default, _convolve),
    (aten.convolution_backward_overrideable.default, _convolve_backward),
    (aten._fused_sdp_choice.default, _sdp_choice),
    (aten._efficientzerotensor.default, _zeros),
    (aten.record_stream.default, _record_stream),
    (aten._pack_padded_sequence.default, _pack),
    *((op, _window(op)) for op in _WINDOWS),
)


def register_lazy_copies() -> list[Any]:
    """A copy carries a pending conjugation out itself; PyTorch would do it by a copy, and that by a copy."""
    library = torch.library.Library("aten", "IMPL")
    for name in ("_copy_from", "_copy_from_and_resize"):
        for key in ("Conjugate", "Negative"):
            library.impl(name, torch.library.fallthrough_kernel, key)
    return [library]


# autocast

_LOWER: Final = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "bmm", "mm",
    "linalg_vecdot", "baddbmm", "addmm", "addbmm", "linear", "matmul", "scaled_dot_product_attention",
)  # fmt: skip
_FULL: Final = (
    "avg_pool3d", "binary_cross_entropy", "mse_loss", "nll_loss", "nll_loss2d", "cross_entropy_loss", "layer_norm",
    "group_norm", "softmax.int", "log_softmax.int", "cumprod", "prod", "prod.dim_int", "cdist", "pow.Tensor_Scalar",
    "norm.Scalar", "smooth_l1_loss", "l1_loss", "huber_loss", "kl_div", "cosine_similarity", "pdist",
)  # fmt: skip


def register_autocast() -> list[Any]:
    """Products in the lower precision, losses and normalizations in float32, the rest as it comes."""
    through = torch.library.Library("_", "IMPL")
    through.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    for names, lower in ((_LOWER, True), (_FULL, False)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(aten, packet), overload or "default", None)
            if op is not None:
                library.impl(name, _casting(op, lower), "AutocastPrivateUse1")
    return [through, library]


def _casting(op: Any, lower: bool) -> Callable[..., Any]:
    key = torch_c.DispatchKeySet(torch_c.DispatchKey.AutocastPrivateUse1)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        wanted = torch.get_autocast_dtype("ort") if lower else torch.float32

        def cast(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                suits = value.is_floating_point() and value.device.type == "ort" and value.dtype != torch.float64
                return value.to(wanted) if suits else value
            return type(value)(cast(v) for v in value) if isinstance(value, (list, tuple)) else value  # pyright: ignore

        with torch_c._ExcludeDispatchKeyGuard(key):
            return op(*(cast(a) for a in args), **{name: cast(v) for name, v in kwargs.items()})

    return kernel
