"""Modules that load when they are first looked at."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from smelt.base.deferred import defer


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "slowly_loaded_for_a_test"
    text = "import time\nfirst = 1\ntime.sleep(0.2)\nlast = 2\n"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    defer(name)
    return name


def test_code_runs_at_the_first_look_and_the_module_is_a_plain_one_afterwards(slow_module: str) -> None:
    module = __import__(slow_module)
    assert "last" not in object.__getattribute__(module, "__dict__")
    assert module.last == 2
    assert type(module) is type(sys)
    assert module.__spec__.name == slow_module


def test_threads_that_look_at_once_all_see_the_whole_module(slow_module: str) -> None:
    module = __import__(slow_module)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(module.last)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [2] * 4


def test_compiling_needs_neither_sympy_nor_the_reference_evaluator() -> None:
    program = (
        "import sys, smelt.pipeline, onnx_ir\n"
        "heavy = [m for m in ('sympy.core', 'onnx.reference', 'onnxruntime', 'torch') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "import sympy\n"
        "assert str(onnx_ir.SymbolicDim('n') + 1) == 'n + 1'\n"
        "assert sympy.Symbol('x').name == 'x'\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
