"""Kernels of a user's own, in C: see `kernel.py`."""

from .carry import pickled_kernels, unpickle_kernels
from .files import load_kernel_files
from .kernel import (
    UserKernel,
    check_user_text,
    digest_of_kernels,
    find_user_kernel,
    forget_user_kernel,
    is_user_op,
    register_user_kernel,
    split_name,
    user_kernels,
)

__all__ = [
    "UserKernel", "check_user_text", "digest_of_kernels", "find_user_kernel", "forget_user_kernel", "is_user_op",
    "load_kernel_files", "pickled_kernels", "register_user_kernel", "split_name", "unpickle_kernels", "user_kernels",
]  # fmt: skip
