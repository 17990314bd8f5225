"""What is wrong gets torch's own error or a correct fallback, and the next call is as good as ever."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import smelt
from smelt.base import ConfigError, NoCompilerError
from smelt.export import forget_converter, register_converter
from smelt.frontends.torch_compile import Listening
from smelt.frontends.torch_compile.parts.sessions import forget_sessions

PLAIN = {"kernels": False}


def layer() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh()).eval()


WRONG: dict[str, Callable[[], torch.Tensor]] = {
    "dtype": lambda: torch.randn(3, 8, dtype=torch.float64),
    "size": lambda: torch.randn(3, 7),
    "rank": lambda: torch.tensor(1.0),
}
WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "torch.compile": lambda model: torch.compile(model, backend="smelt", options=PLAIN),
    "wrapper": lambda model: smelt.compile(model, kernels=False),
}


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_argument_raises_as_in_eager_and_the_next_call_is_right(way: str):
    model, x = layer(), torch.randn(3, 8)
    fast = WAYS[way](model)
    torch.testing.assert_close(fast(x), model(x))
    for wrong in WRONG.values():
        with pytest.raises(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast(wrong())
    torch.testing.assert_close(fast(x), model(x))


@torch.no_grad()
def test_a_tensor_on_another_device_stays_in_torch():
    with Listening() as record:
        found = torch.compile(lambda x: x.sin() + 1, backend="smelt", options=PLAIN)(torch.randn(3, 4, device="meta"))
    assert found.device.type == "meta" and found.shape == (3, 4)
    assert {reason for _, reason in record.fallback_nodes} == {"a tensor on meta"}


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:smelt. the module is not captured whole")
def test_control_flow_that_depends_on_data_takes_the_branch_of_eager(way: str):
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp() if x.sum() > 0 else -x

    model = Branching().eval()
    fast = WAYS[way](model)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        torch.testing.assert_close(fast(x), model(x))


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_results_that_are_no_tensors_come_back_as_they_are(way: str):
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"sum": x.sum(), "name": "x", "count": 3, "none": None, "pair": (x + 1, True)}

    model, x = Mixed().eval(), torch.randn(4)
    found, wanted = WAYS[way](model)(x), model(x)
    assert {k: found[k] for k in ("name", "count", "none")} == {"name": "x", "count": 3, "none": None}
    torch.testing.assert_close(found["sum"], wanted["sum"])
    torch.testing.assert_close(found["pair"][0], wanted["pair"][0])
    assert found["pair"][1] is True


@torch.no_grad()
def test_without_a_compiler_the_model_runs_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch):
    def none_found(*_: Any) -> Any:
        raise NoCompilerError("SM-TOOL-001", "no C compiler was found")

    monkeypatch.setattr("smelt.kernels.find_compiler", none_found)
    model, x = layer(), torch.randn(3, 8)
    with Listening() as record:
        found = torch.compile(model, backend="smelt", options={"kernels": True, "cache_size": 0})(x)
    torch.testing.assert_close(found, model(x))
    part = record.graphs[0].parts[0]
    assert not part.kernels and "no C compiler was found" in part.notes[0]


@torch.library.custom_op("smelt_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.no_grad()
def test_a_converter_that_raises_leaves_its_node_to_torch():
    @register_converter("smelt_tests::halved")
    def broken(call: Any, x: Any) -> Any:
        raise ZeroDivisionError("in the user's own code")

    x = torch.randn(3, 8)
    try:
        with Listening() as record:
            found = torch.compile(lambda x: halved(x.sin()) + 1, backend="smelt", options=PLAIN)(x)
    finally:
        forget_converter("smelt_tests::halved")
    torch.testing.assert_close(found, halved(x.sin()) + 1)
    reasons = [reason for _, reason in record.fallback_nodes]
    assert any("ZeroDivisionError: in the user's own code" in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("providers", "told"),
    [
        (["CudaExecutionProvider"], "CPUExecutionProvider"),
        ([3], "a name or a pair"),
        ("CPUExecutionProvider", "a list"),
    ],
)
def test_a_provider_that_is_not_there_is_an_error_that_names_those_that_are(providers: Any, told: str):
    from smelt.base import Config
    from smelt.frontends.torch_compile.options import read_options

    with pytest.raises(ConfigError, match=told):
        read_options({"providers": providers}, Config.from_env({}))


@torch.no_grad()
def test_providers_take_options():
    model, x = layer(), torch.randn(3, 8)
    chosen = [("CPUExecutionProvider", {"use_arena": "0"})]
    found = torch.compile(model, backend="smelt", options={**PLAIN, "providers": chosen})(x)
    torch.testing.assert_close(found, model(x))


PROGRAM = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 8)).eval()
torch.nn.init.constant_(model[0].weight, 0.01), torch.nn.init.constant_(model[2].weight, 0.02)
import smelt.frontends.torch_compile as backend
with torch.no_grad(), backend.Listening() as record:
    x = torch.ones(40, 64)
    found = torch.compile(model, backend="smelt", options={"kernels": True})(x)
    torch.testing.assert_close(found, model(x))
assert record.graphs[0].parts[0].kernels, record.graphs[0].parts[0].notes
"""


def _process(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "SMELT_CACHE_DIR": str(cache)}, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.full
def test_two_processes_compile_the_same_model_and_a_damaged_cache_is_mended(tmp_path: Path):
    cache = tmp_path / "cache"
    both = [_process(cache), _process(cache)]
    for process in both:
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors
    files = [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size]
    assert files
    for path in files:
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again = _process(cache)
    _, errors = again.communicate(timeout=900)
    assert again.returncode == 0, errors


@pytest.fixture(autouse=True)
def no_session_is_known() -> None:
    forget_sessions()
