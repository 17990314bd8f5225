"""Python files that register kernels: `--kernels`, `SMELT_KERNELS`.

Input: paths. Output: the kernels of each are registered. Invariant: a file is run once in a process, by this user's own
wish; what it raises is an error that names the file.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from smelt.base.errors import KernelError, SmeltError

_loaded: set[Path] = set()


def load_kernel_files(paths: Iterable[Path]) -> None:
    for path in (one.absolute() for one in paths):
        if path not in _loaded:
            _run(path)
            _loaded.add(path)


def _run(path: Path) -> None:
    if not path.is_file():
        raise KernelError("SM-KERNEL-004", f"there is no file {path} with kernels")
    name = f"smelt_kernels_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise KernelError("SM-KERNEL-004", f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SmeltError:
        raise
    except Exception as error:
        raise KernelError("SM-KERNEL-004", f"{path} raised {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[name]  # its functions are carried to the verifying process by value
