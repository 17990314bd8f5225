"""Registered kernels for the process that verifies.

Input: what this process has registered. Output: bytes, and the same registered in another process. Invariant: the
bytes hold the user's own functions, made by this user's process for one that it starts; nothing of a model is in them.
Launchers of Triton kernels stay here: that process has no GPU's code to look at.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from smelt.base.errors import KernelError

from .kernel import UserKernel, register_user_kernel, user_kernels


def pickled_kernels() -> bytes:
    """Empty where there are none."""
    if not user_kernels():
        return b""
    try:
        import cloudpickle
    except ImportError as error:
        raise KernelError(
            "SM-KERNEL-005", "verifying your own kernels needs the package cloudpickle",
            hint='pip install "onnx-smelt[kernels]"',
        ) from error  # fmt: skip
    return cloudpickle.dumps(tuple(replace(kernel, triton=None) for kernel in user_kernels()))


def unpickle_kernels(data: bytes) -> None:
    if not data:
        return
    kernels: tuple[UserKernel, ...] = pickle.loads(data)  # noqa: S301  this user's own
    for kernel in kernels:
        register_user_kernel(kernel, replace=True)
