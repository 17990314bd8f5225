"""Gradients through compiled graphs are eager's."""

from __future__ import annotations

import copy
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smelt.frontends.torch_compile import Listening
from smelt.frontends.torch_compile.graph import worth
from smelt.frontends.torch_compile.graph.table_gradients import table_gradient
from smelt.frontends.torch_compile.graph.zero_sums import summed
from smelt.frontends.torch_compile.parts import first_call

PLAIN = {"kernels": False}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(F.gelu(self.norm(self.table(tokens))), 0.3)
        return F.cross_entropy(self.head(hidden).view(-1, 50), tokens.view(-1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width)).square().mean()


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.head = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(self.second(x).mean((2, 3))).square().mean()


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 4), nn.Softmax(-1), nn.Flatten(0))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "feed-forward": (feed_forward, lambda n: torch.randn(n, 8)),
    "classifier": (Classifier, lambda n: torch.randint(0, 50, (2, n))),
    "attention": (Attention, lambda n: torch.randn(2, n, 32)),
    "convolutions": (Convolutions, lambda n: torch.randn(n, 3, 12, 12)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_and_buffers_are_those_of_eager(case: str, dynamic: bool):
    make, inputs = CASES[case]
    model = make()
    twin = copy.deepcopy(model)
    fast = torch.compile(twin, backend="smelt", dynamic=dynamic, options=PLAIN)
    for size in (4, 6) if dynamic else (4,):
        x = inputs(size)
        losses = []
        for each in (model, fast):
            each.zero_grad()
            torch.manual_seed(7)
            loss = each(x).sum()
            loss.backward()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
        for (name, wanted), found in zip(model.named_parameters(), twin.parameters(), strict=True):
            scale = float(wanted.grad.abs().max())
            torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-3, atol=1e-4 * scale + 1e-7, msg=name)
        for wanted, found in zip(model.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_dropout_does_not_cut_the_graph():
    """Masks are drawn in torch, for the same numbers as in eager; all else is one session."""

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(F.dropout(x.sin(), 0.3).cos(), 0.4).tan()

    x = torch.randn(6, 5, requires_grad=True)
    for dynamic in (False, True):
        torch._dynamo.reset()
        with Listening() as record:
            torch.manual_seed(3)
            found = torch.compile(Twice(), backend="smelt", dynamic=dynamic, options=PLAIN)(x)
        torch.manual_seed(3)
        torch.testing.assert_close(found, Twice()(x))
        forward = record.graphs[0]
        assert forward.kind == "forward" and len(forward.parts) == 1
        assert [node.target for node in forward.fallback_nodes] == ["aten.bernoulli.p"] * 2


def test_small_training_graphs_get_kernels_only_when_asked_for():
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
    with Listening() as record:
        torch.compile(model, backend="smelt")(torch.randn(64, 64)).sum().backward()
    assert [part.kernels for graph in record.graphs for part in graph.parts] == [False, False]


@pytest.mark.parametrize("slow", ["kernels", "plain"])
def test_training_graphs_with_much_work_keep_the_faster_of_kernels_and_a_plain_session(monkeypatch, slow: str):
    def shortest(calls, args):
        for call in calls:
            call(args)
        return [2.0, 1.0] if slow == "kernels" else [1.0, 2.0]

    monkeypatch.setattr(first_call, "_shortest", shortest)
    monkeypatch.setattr(worth, "TRAINING_WORK", 1_000_000)
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
    twin, x = copy.deepcopy(model), torch.randn(64, 64)
    with Listening() as record:
        torch.compile(model, backend="smelt")(x).sum().backward()
    twin(x).sum().backward()
    parts = [part for graph in record.graphs for part in graph.parts]
    assert [part.kernels for part in parts] == [slow == "plain"] * 2
    assert all(any("faster than kernels" in note for note in part.notes) == (slow == "kernels") for part in parts)
    for found, wanted in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-4)


def test_gradients_of_large_tables_stay_in_torch():
    table, x = nn.Embedding(1000, 8, padding_idx=3), torch.randint(0, 10, (4, 5))
    twin = copy.deepcopy(table)
    with Listening() as record:
        torch.compile(table, backend="smelt")(x).square().sum().backward()
    twin(x).square().sum().backward()
    torch.testing.assert_close(table.weight.grad, twin.weight.grad)
    (fallback,) = [
        node for graph in record.graphs for node in graph.fallback_nodes
    ]  # told, as everything that torch computes
    assert "embedding_dense_backward" in fallback.target and "table of zeros" in fallback.reason
    assert not any(graph.fallback for graph in record.graphs)
    with Listening() as record:
        torch._dynamo.reset()
        table.zero_grad()
        torch.compile(table, backend="smelt", options={"strict": True})(x).square().sum().backward()
    torch.testing.assert_close(table.weight.grad, twin.weight.grad)
    assert not any(graph.fallback_nodes for graph in record.graphs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("padding", "by_frequency"), [(-1, False), (3, False), (3, True)])
def test_a_table_gradient_is_that_of_torch(dtype: torch.dtype, padding: int, by_frequency: bool) -> None:
    gradient, indices = torch.randn(5, 9, 24).to(dtype), torch.randint(0, 11, (5, 9))
    expected = torch.ops.aten.embedding_dense_backward(gradient, indices, 700, padding, by_frequency)
    found = table_gradient(gradient, indices, 700, padding, by_frequency)
    assert found.dtype == dtype and found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    nothing = table_gradient(gradient[:0], indices[:0], 700, padding, by_frequency)
    assert nothing.shape == (700, 24) and not nothing.any()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults as Linux does")
def test_rows_of_a_table_that_no_index_names_take_no_memory() -> None:
    table = nn.Embedding(1 << 18, 64)  # 64 MB
    fast = torch.compile(table, backend="smelt", options=PLAIN)
    x = torch.tensor([[5, 9, 70_000, 5]])
    fast(x).square().sum().backward()
    table.weight.grad = None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fast(x).square().sum().backward()
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert touched < 4000, "all of the table is 16384 pages"
    assert int((table.weight.grad != 0).any(1).sum()) == 3


class Heads(nn.Module):
    """Attention of several heads; of its biases, that of the keys has no effect."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (layer(x).unflatten(-1, (4, 4)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return F.scaled_dot_product_attention(*parts, dropout_p=self.dropout).square().mean()


FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("dropout", "batch"), [(0.0, 3), (0.2, 1), pytest.param(0.0, 1, marks=FULL), pytest.param(0.2, 3, marks=FULL)]
)
def test_a_sum_that_is_zero_but_for_roundings_stays_in_torch(dropout: float, batch: int) -> None:
    torch.manual_seed(0)
    model, x = Heads(dropout), torch.randn(batch, 12, 16)
    twin = copy.deepcopy(model)
    with Listening() as record:
        fast = torch.compile(twin, backend="smelt", fullgraph=True, options={"kernels": True})
        for each in (model, fast):
            torch.manual_seed(1)
            each(x).backward()
    (backward,) = [graph for graph in record.graphs if graph.kind == "backward"]
    zero = [node for node in backward.fallback_nodes if node.reason == "zero but for roundings"]
    assert [node.target for node in zero if "sum" in node.target] == ["aten.sum.dim_IntList"], "the keys' bias only"
    assert len(backward.parts) == 1 and not backward.parts[0].notes
    assert twin.key.bias.grad is not None and twin.key.bias.grad.abs().max() < 1e-6
    for wanted, found in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("axes", "keepdim"), [([0], True), ([0, -1], False), ([0, 1, 2], False), ([], True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_in_the_calling_thread_is_that_of_torch(dtype: torch.dtype, axes: list[int], keepdim: bool) -> None:
    x = torch.randn(6, 5, 4).transpose(0, 2).to(dtype)
    found, wanted = summed(x, axes, keepdim), torch.ops.aten.sum.dim_IntList(x, axes, keepdim)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    torch.testing.assert_close(found, wanted)


def test_a_session_without_kernels_makes_such_sums_itself() -> None:
    with Listening() as record:
        torch.compile(Heads(0.0), backend="smelt", options=PLAIN)(torch.randn(2, 12, 16)).backward()
    assert not any(graph.fallback_nodes for graph in record.graphs)


@pytest.mark.parametrize(("patterns", "applied"), [(None, True), ("default", False)])
def test_graphs_with_gradients_are_simplified_by_the_set_for_training(patterns: str | None, applied: bool):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    with Listening() as record:
        torch.compile(model, backend="smelt", options={"patterns": patterns})(torch.randn(6, 8)).sum().backward()
    rules = {name for graph in record.graphs for part in graph.parts for name in part.rules}
    assert ("transposed-to-gemm" in rules) is applied


class Turned(nn.Module):
    """Its first bias has no effect on the loss: the gradient is zero, but for roundings."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = (x @ self.keys(x).transpose(-1, -2) / 7).softmax(-1)
        return (shares @ self.values(x)).square().mean()


def test_kernels_of_training_graphs_are_verified_on_the_first_call(monkeypatch: pytest.MonkeyPatch):
    from smelt.frontends.torch_compile.parts import sessions

    fed: list[Mapping[str, Any] | None] = []
    compile_to = sessions.compile_to

    def watched(model: Any, folder: Path, options: Any, *rest: Any) -> Any:
        fed.append(options.feeds)
        return compile_to(model, folder, options, *rest)

    monkeypatch.setattr(sessions, "compile_to", watched)
    torch.manual_seed(0)
    model, x = Turned(), torch.randn(2, 40, 48)
    twin = copy.deepcopy(model)
    with Listening() as record:
        fast = torch.compile(twin, backend="smelt", options={"kernels": True})
        for _ in range(2):
            for each in (model, fast):
                each.zero_grad()
                each(x).backward()
    assert len(fed) == 2
    assert any(np.array_equal(array, x.numpy()) for array in (fed[0] or {}).values())
    parts = [part for graph in record.graphs for part in graph.parts]
    assert [part.kernels for part in parts] == [True, True]
    assert all(part.in_kernels for part in parts) and not any(part.notes for part in parts)
    for wanted, found in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-7)


def test_a_part_that_cannot_be_compiled_at_its_first_call_gets_a_plain_session(monkeypatch: pytest.MonkeyPatch):
    from smelt.frontends.torch_compile.parts import sessions

    def broken(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(sessions, "compile_to", broken)
    model, x = feed_forward(), torch.randn(4, 8)
    with Listening() as record, pytest.warns(UserWarning, match="a plain session instead: OSError: no space left"):
        found = torch.compile(model, backend="smelt", options={"kernels": True})(x)
    torch.testing.assert_close(found, model(x))
    part = record.graphs[0].parts[0]
    assert part.notes and not part.kernels and not part.failures


def llama() -> tuple[nn.Module, Callable[[], dict[str, torch.Tensor]]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return LlamaForCausalLM(config), _tokens


def bert() -> tuple[nn.Module, Callable[[], dict[str, torch.Tensor]]]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    return BertForMaskedLM(config), _tokens


def _tokens() -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 64, (2, 12))
    return {"input_ids": tokens, "labels": tokens}


def losses(model: nn.Module, call: Callable[..., object], batches: list[dict[str, torch.Tensor]]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    curve = []
    for number, batch in enumerate(batches):
        torch.manual_seed(number)
        result = call(**batch)
        loss = result if isinstance(result, torch.Tensor) else result.loss  # type: ignore[attr-defined]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(float(loss.detach()))
    return curve


def same_curve(make: Callable[[], tuple[nn.Module, Callable[[], dict[str, torch.Tensor]]]], steps: int) -> None:
    pytest.importorskip("transformers")
    model, batch = make()
    twin = copy.deepcopy(model)
    few = [batch() for _ in range(min(steps, 4))]  # met again and again: there is something to learn
    batches = [few[step % len(few)] for step in range(steps)]
    found = losses(twin, torch.compile(twin, backend="smelt", options=PLAIN), batches)
    wanted = losses(model, model, batches)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=2e-3, atol=2e-3)
    assert wanted[-1] < wanted[0]


def convolutions() -> tuple[nn.Module, Callable[[], dict[str, torch.Tensor]]]:
    return Convolutions(), lambda: {"x": torch.randn(4, 3, 12, 12)}


@pytest.mark.parametrize("make", [convolutions])
def test_a_few_steps_of_adamw_give_the_same_losses(make):
    same_curve(make, 12)


@pytest.mark.full
@pytest.mark.parametrize("make", [bert, llama, convolutions])
def test_two_hundred_steps_of_adamw_give_the_same_losses(make):
    same_curve(make, 200)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_trains_as_eager_does(dtype: torch.dtype):
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
    twin, x = copy.deepcopy(model), torch.randn(6, 16)
    found = torch.compile(twin, backend="smelt", options=PLAIN)
    for each in (model, found):
        with torch.autocast("cpu", dtype=dtype):
            loss = each(x).float().square().mean()
        loss.backward()
    for wanted, made in zip(model.parameters(), twin.parameters(), strict=True):
        assert made.grad.dtype == wanted.grad.dtype
        scale = float(wanted.grad.abs().max())
        torch.testing.assert_close(made.grad, wanted.grad, rtol=2e-2, atol=2e-2 * scale)


def test_gradients_accumulate_and_checkpoints_recompute():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(checkpoint(self.inner, x, use_reentrant=False))

    model = Checkpointed()
    twin, batches = copy.deepcopy(model), [torch.randn(4, 8) for _ in range(3)]
    fast = torch.compile(twin, backend="smelt", options=PLAIN)
    for x in batches:
        model(x).sum().backward()
        fast(x).sum().backward()
    for wanted, found in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_words_train_and_serve(mode):
    torch.manual_seed(0)
    module = nn.EmbeddingBag(10, 4, mode=mode, padding_idx=3)
    compiled = torch.compile(copy.deepcopy(module), backend="smelt")
    words, begins = torch.tensor([1, 2, 4, 5, 3, 3, 2, 9]), torch.tensor([0, 3, 3, 4, 6])
    wanted, found = module(words, begins), compiled(words, begins)
    wanted.square().sum().backward()
    found.square().sum().backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(compiled.weight.grad, module.weight.grad)
    with torch.no_grad():
        torch.testing.assert_close(compiled(words, begins), wanted.detach())
