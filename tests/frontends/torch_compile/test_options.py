"""Options of the wrong kind are refused by name before anything is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from smelt.base.config import Config
from smelt.base.errors import ConfigError
from smelt.frontends.torch_compile.options import TorchOptions, read_options

WRONG = [
    ("providers", 3), ("providers", "CPUExecutionProvider"), ("providers", {"CPUExecutionProvider": {}}),
    ("session", 3), ("session", [("a", "b")]), ("session", {"session.intra_op.allow_spinning": 0}),
    ("session", {1: "0"}),
    ("threads", 100_000), ("threads", -1), ("threads", "2"),
    ("transforms", 3), ("transforms", None), ("transforms", print), ("transforms", ["x"]),
    ("skip_passes", 3), ("skip_passes", "fold-constants"), ("skip_passes", [3]),
    ("patterns", 3), ("dump", 3), ("intercept", "yes"), ("debug", "yes"), ("check", "yes"), ("check", float("nan")),
]  # fmt: skip


def text_of(value: Any) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize("as_dict", [True, False], ids=["dict", "dataclass"])
@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: text_of(v))
def test_a_value_of_the_wrong_kind_is_named(name: str, value: Any, as_dict: bool):
    given = {name: value} if as_dict else TorchOptions(**{name: value})
    with pytest.raises(ConfigError, match=f"the option {name} is ") as caught:
        read_options(given, Config.from_env())
    assert caught.value.code == "SM-CONFIG-007"


RIGHT: list[tuple[str, Any]] = [
    ("providers", []), ("providers", ("CPUExecutionProvider",)), ("session", {"session.intra_op.allow_spinning": "0"}),
    ("threads", 2), ("transforms", [print]), ("transforms", (print,)), ("skip_passes", ("fold-constants",)),
    ("dump", "folder"), ("dump", Path("folder")), ("intercept", print), ("debug", print), ("check", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), RIGHT, ids=lambda v: text_of(v))
def test_values_of_the_right_kind_are_taken(name: str, value: Any):
    found = read_options({name: value}, Config.from_env())
    assert found == read_options(TorchOptions(**{name: value}), Config.from_env())
    assert getattr(found, name) == (Path("folder") if name == "dump" else value)


def test_a_transform_that_returns_no_model_is_named():
    torch = pytest.importorskip("torch")
    fast = torch.compile(torch.relu, backend="smelt", options={"transforms": [lambda model: 3], "kernels": False})
    with pytest.warns(UserWarning, match="a transform returns an onnx_ir.Model or None, not a int"):
        assert fast(torch.ones(2)).tolist() == [1, 1]


def test_a_pass_that_there_is_not_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError, match="fold-constants"):
        read_options({"skip_passes": ["fold-constant"]}, Config.from_env())


@pytest.mark.parametrize("precision", ["w8", "int8-dynamic"])
def test_weights_of_products_may_be_narrow(precision: str):
    module = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Tanh()).eval()
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = module(x)
        got = torch.compile(module, backend="smelt", options={"precision": precision, "kernels": True})(x)
    error = ((got - wanted).norm() / wanted.norm()).item()
    assert 1e-5 < error < 2e-2
