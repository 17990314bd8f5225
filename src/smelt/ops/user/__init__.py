"""Kernels of a user's own, in C and in Triton: see `kernel.py`."""

from .carry import pickled_kernels, unpickle_kernels
from .device import GPU_ALONE
from .files import load_kernel_files
from .kernel import (
    UserKernel,
    check_user_text,
    digest_of_kernels,
    find_user_kernel,
    forget_user_kernel,
    is_user_op,
    launcher_rules,
    register_user_kernel,
    runs_on_gpu_alone,
    split_name,
    user_kernels,
)

__all__ = [
    "GPU_ALONE", "UserKernel", "check_user_text", "digest_of_kernels", "find_user_kernel", "forget_user_kernel",
    "is_user_op", "launcher_rules", "load_kernel_files", "pickled_kernels", "register_user_kernel",
    "runs_on_gpu_alone", "split_name", "unpickle_kernels", "user_kernels",
]  # fmt: skip
