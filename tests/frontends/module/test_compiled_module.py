"""A compiled module is the module, only faster."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import smelt  # noqa: E402
from smelt.base.errors import ArtifactError, ConfigError, InputError, TorchError  # noqa: E402
from smelt.frontends.torch_compile import Listening  # noqa: E402

PLAIN: Any = {"kernels": False}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)

    def forward(self, x: Any, scale: Any = None, as_dict: bool = True) -> Any:
        y = self.norm(x + self.second(nn.functional.gelu(self.first(x))))
        return {"y": y, "more": (y * scale if scale is not None else y, 3, None)} if as_dict else y


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_structures_keywords_and_sizes(net: Any) -> None:
    fast = smelt.compile(net, **PLAIN)
    for shape in ((5, 8), (9, 8), (2, 7, 8), (4, 3, 8), (1, 8)):
        x = torch.randn(*shape)
        same(fast(x), net(x))
        same(fast(x=x, scale=torch.tensor(2.0)), net(x, scale=torch.tensor(2.0)))
        same(fast(x, as_dict=False), net(x, as_dict=False))
    assert sum("float32[s" in line for line in fast.explain().splitlines()) >= 2


@torch.no_grad()
def test_one_program_serves_all_sizes_and_the_least_used_goes(net: Any) -> None:
    fast = smelt.compile(net, kept=2, **PLAIN)
    for n in range(2, 12):
        fast(torch.randn(n, 8))
    assert len(fast.programs) == 1
    fast(torch.randn(2, 3, 8))
    fast(torch.randn(4, 8))
    fast(torch.randn(2, 3, 4, 8))
    served = [len(p.captured.guard.checks[0][2]) for p in fast.programs]
    assert served == [2, 4]


@torch.no_grad()
def test_fixed_sizes_on_request(net: Any) -> None:
    fast = smelt.compile(net, dynamic=False, **PLAIN)
    for n in (2, 3):
        same(fast(torch.ones(n, 8)), net(torch.ones(n, 8)))
    assert len(fast.programs) == 2


@torch.no_grad()
def test_a_change_of_weights_is_seen(net: Any) -> None:
    fast = smelt.compile(net, **PLAIN)
    x = torch.randn(4, 8)
    for _ in range(3):
        same(fast(x, as_dict=False), net(x, as_dict=False))
        same(fast(x, as_dict=False), net(x, as_dict=False))
        net.first.weight.mul_(1.5)
    net.load_state_dict(Net().state_dict())
    same(fast(x), net(x))
    fast.load_state_dict(Net().state_dict())
    same(fast(x), net(x))
    net.first.weight = nn.Parameter(torch.ones(16, 8))
    same(fast(x), net(x))


@torch.no_grad()
def test_refresh_shows_what_torch_does_not_count(net: Any) -> None:
    fast = smelt.compile(net, **PLAIN)
    x = torch.randn(4, 8)
    fast(x)
    net.first.weight.data.mul_(2)
    smelt.refresh(fast)
    same(fast(x), net(x))


def test_it_is_the_module_to_the_outside(net: Any) -> None:
    fast = smelt.compile(net, **PLAIN)
    assert isinstance(fast, smelt.CompiledModule) and isinstance(fast, nn.Module)
    assert list(fast.state_dict()) == list(net.state_dict())
    assert [id(p) for p in fast.parameters()] == [id(p) for p in net.parameters()]
    assert fast.first is net.first
    assert fast.train().training and net.training and not fast.eval().training and not net.training
    assert fast.double().first.weight.dtype == torch.float64
    with torch.no_grad():
        x = torch.randn(3, 8, dtype=torch.float64)
        same(fast(x), net(x))
    with pytest.raises(AttributeError):
        _ = fast.nothing


class Base(nn.Module):
    def twice(self, x: Any) -> Any:
        return self(self(x))


class Derived(Base):
    limit = 1

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.limit = nn.Linear(4, 4), 5

    def forward(self, x: Any, times: int = 1) -> Any:
        return self.inner(x) * times

    def twice(self, x: Any) -> Any:
        return super().twice(x) + self.limit

    def by_class(self, x: Any) -> Any:
        return type(self).twice(self, x), self.__class__.__name__


@torch.no_grad()
def test_methods_may_look_at_their_class() -> None:
    net = Derived().eval()
    fast = smelt.compile(net, **PLAIN)
    x = torch.randn(3, 4)
    same(fast.twice(x), net.twice(x))
    same(fast.by_class(x)[0], net.twice(x))
    assert fast.by_class(x)[1] == "Derived" and fast.programs[-1].calls == 6
    assert isinstance(fast, Derived) and isinstance(fast, smelt.CompiledModule)
    assert inspect.signature(fast.forward) == inspect.signature(net.forward)
    assert not hasattr(type(fast), "nothing")


class Tally:
    """State that a call changes."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


@torch.no_grad()
def test_arguments_that_a_call_changes_are_changed() -> None:
    class Appending(nn.Module):
        def forward(self, x: Any, tally: Any) -> Any:
            tally.seen.append(x * 2)
            return tally.seen[-1] + 1

    fast = smelt.compile(Appending().eval(), **PLAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (3, 5, 7):
            tally = Tally()
            same(fast(torch.ones(size), tally), torch.full((size,), 3.0))
            same(tally.seen, [torch.full((size,), 2.0)])
    assert "by torch.compile: a call may change its Tally" in fast.explain()


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:smelt")
def test_what_was_refused_once_is_not_tried_again_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    class Branching(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    fast = smelt.compile(Branching().eval(), **PLAIN)
    fast(torch.ones(3))
    monkeypatch.setattr("smelt.frontends.module.compiled_module.capture", None)
    same(fast(torch.ones(5)), torch.full((5,), 2.0))


@torch.no_grad()
def test_results_share_memory_as_in_eager() -> None:
    class Rows(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.exp()
            return y, y[0]

    whole, row = smelt.compile(Rows().eval(), **PLAIN)(torch.zeros(3, 2))
    whole[0, 0] = 7
    assert row.tolist() == [7, 1]


@torch.no_grad()
@pytest.mark.parametrize("calls", [60, pytest.param(500, marks=pytest.mark.full)])
def test_many_shapes_need_one_program_and_no_more_memory(net: Any, calls: int) -> None:
    fast = smelt.compile(net, **PLAIN)
    sizes = [(1 + 7 * number) % 251 + 1 for number in range(calls // 10)]
    with Listening() as record:
        middle = 0
        for number in range(calls):
            fast(torch.randn(sizes[number % len(sizes)], 8))
            middle = _resident_bytes() if number == calls // 2 else middle
    assert len(record.graphs) == len(fast.programs) == 1
    assert _resident_bytes() - middle < 8 << 20


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


@torch.no_grad()
def test_copies_and_pickles(net: Any) -> None:
    fast = smelt.compile(net, **PLAIN)
    x = torch.randn(3, 8)
    fast(x)
    for twin in (pickle.loads(pickle.dumps(fast)), copy.deepcopy(fast)):
        same(twin(x), net(x))
        assert twin.wrapped is not net


def test_training_goes_through_torch_compile() -> None:
    torch.manual_seed(0)
    net = Net()
    fast = smelt.compile(net, **PLAIN)
    x = torch.randn(4, 8)
    loss = fast(x, as_dict=False).square().mean()
    loss.backward()
    got = net.first.weight.grad.clone()
    net.zero_grad()
    net(x, as_dict=False).square().mean().backward()
    same(got, net.first.weight.grad)


def test_buffers_are_written() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    net, twin = Counting().eval(), Counting().eval()
    fast = smelt.compile(net, **PLAIN)
    with torch.no_grad():
        for _ in range(3):
            same(fast(torch.ones(3)), twin(torch.ones(3)))
    assert net.count == 3


@pytest.mark.filterwarnings("ignore:smelt")
def test_what_cannot_be_captured_runs_all_the_same() -> None:
    class Branching(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    fast = smelt.compile(Branching().eval(), **PLAIN)
    with torch.no_grad():
        for sign in (1, -1, 1):
            assert torch.equal(fast(sign * torch.ones(3)), sign * torch.full((3,), 2.0))
    assert "by torch.compile" in fast.explain()


def test_wrong_options_are_named(net: Any) -> None:
    with pytest.raises(ConfigError, match="freeze"):
        smelt.compile(net, freez=True)


@torch.no_grad()
def test_a_saved_module_loads_in_another_process(net: Any, tmp_path: Path) -> None:
    fast = smelt.compile(net, **PLAIN)
    x = torch.randn(5, 8)
    wanted = fast(x)
    fast.save(tmp_path / "saved")
    torch.save((x, wanted), tmp_path / "call.pt")
    code = (
        "import sys, torch, smelt\n"
        "x, wanted = torch.load(sys.argv[2])\n"
        "module = smelt.load(sys.argv[1])\n"
        "torch.testing.assert_close(module(x), wanted)\n"
        "assert module(torch.ones(11, 8))['y'].shape == (11, 8)\n"
        "assert not any(name.startswith(('smelt.export', 'smelt.codegen', 'onnxscript')) for name in sys.modules)\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "saved"), str(tmp_path / "call.pt")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@torch.no_grad()
def test_a_loaded_module_says_what_it_does_not_serve(net: Any, tmp_path: Path) -> None:
    smelt.compile(net, **PLAIN).save(tmp_path / "saved", torch.randn(5, 8))
    module = smelt.load(tmp_path / "saved")
    same(module(torch.ones(3, 8)), net(torch.ones(3, 8)))
    for wrong in (torch.ones(3, 9), torch.ones(3, 8).double(), torch.ones(2, 3, 8)):
        with pytest.raises(InputError):
            module(wrong)
    with pytest.raises(InputError, match="a size is 1, where it takes 2 or more") as refused:
        module(torch.ones(1, 8))
    assert "save(folder, *args" in refused.value.hint
    with pytest.raises(InputError):
        module(torch.ones(3, 8), as_dict=False)
    with pytest.raises(TorchError):
        module.train()
    (tmp_path / "saved" / "torch.json").write_text("{}")
    with pytest.raises(ArtifactError):
        smelt.load(tmp_path / "saved")


class Loose(nn.Module):
    """Takes what it is given, as Hugging Face models do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Any, mask: Any = None, **options: Any) -> Any:
        y = self.layer(x) if mask is None else self.layer(x) * mask
        return {"scores": y} if options.get("return_dict") else (y,)


@torch.no_grad()
def test_keywords_that_a_forward_does_not_name_are_captured() -> None:
    module = Loose().eval()
    fast = smelt.compile(module, **PLAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (3, 5):
            x, mask = torch.randn(rows, 8), torch.ones(rows, 1)
            same(fast(x, return_dict=True), module(x, return_dict=True))
            same(fast(mask=mask, x=x, return_dict=None), module(x, mask))
    assert len(fast.programs) == 2
    assert "forward" not in vars(module)


@torch.no_grad()
def test_a_module_that_was_not_called_cannot_be_saved(net: Any, tmp_path: Path) -> None:
    with pytest.raises(TorchError, match="not called yet") as caught:
        smelt.compile(net, **PLAIN).save(tmp_path / "out")
    assert "save(folder" in caught.value.hint
    with pytest.raises(TorchError, match="before its first call"):
        smelt.compile(net, tmp_path / "out", **PLAIN)


@torch.no_grad()
def test_a_wrong_shape_is_the_modules_own_error_and_nothing_else(net: Any, capfd: Any) -> None:
    fast = smelt.compile(net, **PLAIN)
    fast(torch.randn(3, 8))
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        warnings.simplefilter("error")
        fast(torch.randn(3, 9))
    seen = capfd.readouterr()
    assert seen.out + seen.err == ""
    x = torch.randn(3, 8)
    same(fast(x), net(x))


@torch.no_grad()
def test_explain_counts_the_nodes_that_the_artifact_has(net: Any, tmp_path: Path) -> None:
    fast = smelt.compile(net, kernels=True, verify=False)
    fast(torch.randn(3, 8))
    nodes = smelt.load(fast.save(tmp_path / "out")).directory / "manifest.json"
    counted = json.loads(nodes.read_text())["nodes"]
    assert f"{counted['in_kernels']} of {counted['all']} ONNX nodes in kernels" in fast.explain()
    assert counted["in_kernels"] > 0


@torch.no_grad()
def test_a_container_is_one_still() -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    fast = smelt.compile(module, **PLAIN)
    assert len(fast) == 2 and fast[0] is module[0] and list(fast) == list(module)
    assert not hasattr(smelt.compile(nn.ReLU()), "__len__")
    same(fast(torch.ones(3, 8)), module(torch.ones(3, 8)))


@torch.no_grad()
def test_it_is_told_at_once_what_is_compiled(net: Any, caplog: pytest.LogCaptureFixture) -> None:
    fast = smelt.compile(net, **PLAIN)
    with caplog.at_level("INFO", logger="smelt"):
        fast(torch.randn(3, 8))
        told = [record.getMessage() for record in caplog.records if record.name == "smelt.torch"]
        fast(torch.randn(5, 8))
    assert told[0].startswith("compiling Net") and told[-1].startswith("Net is compiled for (float32[s")
    assert len(caplog.records) == len(told)  # one program serves other sizes


@torch.no_grad()
def test_torch_compile_shows_that_it_traces(net: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)  # a notebook, as far as progress can see
    torch._dynamo.reset()
    torch.compile(net, backend="smelt", options=PLAIN)(torch.randn(3, 8))
    assert "trace a graph of 5 calls 0 of 1, 0 s" in capfd.readouterr().err


@torch.no_grad()
def test_it_is_told_when_torch_compile_compiles_again(net: Any, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()  # other tests have compiled the same function
    fast = torch.compile(net, backend="smelt", dynamic=False, options=PLAIN)
    with caplog.at_level("INFO", logger="smelt.torch"):
        fast(torch.randn(3, 8))
        assert [r.getMessage() for r in caplog.records] == ["compiling a graph of 5 calls from torch.compile"]
        fast(torch.randn(5, 8))
    assert "dynamic=True" in caplog.records[-1].getMessage()


def test_a_first_call_in_inference_mode_may_make_constants() -> None:
    """As `SentenceTransformer.encode` does: tensors made there count no versions."""
    with torch.inference_mode():
        module = nn.Linear(8, 4).eval()
        fast = smelt.compile(module, **PLAIN)
        x = torch.randn(3, 8)
        same(fast(x), module(x))
        same(fast(x), module(x))
    assert len(fast.programs) == 1
