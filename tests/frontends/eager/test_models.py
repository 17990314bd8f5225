"""Small models of three families train on the device with the CPU's curve of losses."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402

import smelt.frontends.eager as eager  # noqa: E402

assert eager.AVAILABLE
SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 61,
    "max_position_embeddings": 32,
}  # fmt: skip
Step = Callable[[Any], Any]


def llama() -> tuple[Any, Callable[[int], dict[str, Any]]]:
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config), lambda step: _words(step, labels=True)


def bert() -> tuple[Any, Callable[[int], dict[str, Any]]]:
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}  # the device draws the CPU's numbers
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, **dropout, num_labels=3))
    return model, lambda step: {**_words(step), "labels": torch.arange(4) % 3}


def cnn() -> tuple[Any, Callable[[int], dict[str, Any]]]:
    return Pictures(), lambda step: {"images": _noise(step, 4, 3, 12, 12), "labels": torch.arange(4) % 3}


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 3),
        )  # fmt: skip

    def forward(self, images: Any, labels: Any) -> Any:
        return {"loss": nn.functional.cross_entropy(self.body(images), labels)}


def _words(step: int, labels: bool = False) -> dict[str, Any]:
    ids = (torch.arange(4 * 10).reshape(4, 10) * (7 + step % 3) + step) % 61
    given = {"input_ids": ids, "attention_mask": (torch.arange(10) < 8).long().expand(4, 10)}
    return {**given, "labels": ids} if labels else given


def _noise(step: int, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(step % 2))


def curve(make: Any, device: str, steps: int, optimizer: Any) -> list[float]:
    torch.manual_seed(0)
    model, batch = make()
    model.to(device).train()
    steering = optimizer(model.parameters())
    losses: list[float] = []
    torch.manual_seed(1)
    for step in range(steps):
        steering.zero_grad()
        loss = model(**{name: t.to(device) for name, t in batch(step).items()})["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steering.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3, foreach=False),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True),
}


@pytest.mark.full
@pytest.mark.parametrize("make", [llama, bert, cnn], ids=lambda f: f.__name__)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_of_fifty_steps_are_the_cpus(make: Any, optimizer: str) -> None:
    got, wanted = (curve(make, device, 50, OPTIMIZERS[optimizer]) for device in ("ort", "cpu"))
    assert got == pytest.approx(wanted, rel=1e-3, abs=1e-4)
    assert sum(got[-10:]) < sum(got[:10])


def test_training_goes_on_where_a_checkpoint_was_saved() -> None:
    """Model, optimizer and the generator's state survive a file, and a change of the device."""
    torch.manual_seed(0)
    model, batch = cnn()
    model.to("ort")
    steering = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(number: int) -> float:
        steering.zero_grad()
        loss = model(**{name: t.to("ort") for name, t in batch(number).items()})["loss"]
        loss.backward()
        steering.step()
        return loss.item()

    _ = step(0), step(1)
    file = io.BytesIO()
    kept = {"model": model.state_dict(), "optimizer": steering.state_dict(), "random": torch.ort.get_rng_state()}
    torch.save(kept, file)
    wanted = step(2), step(3)
    for place in ("ort", "cpu"):
        file.seek(0)
        saved = torch.load(file, map_location=place, weights_only=True)
        assert {t.device.type for t in saved["model"].values()} == {place}
        model.load_state_dict(saved["model"])
        steering.load_state_dict(saved["optimizer"])
        torch.ort.set_rng_state(saved["random"])
        assert (step(2), step(3)) == wanted


def test_a_model_moves_there_and_back() -> None:
    torch.manual_seed(0)
    model, batch = bert()
    model.eval()
    given = batch(0)
    wanted = model(**given).logits
    twin = copy.deepcopy(model).to("ort")
    assert {p.device.type for p in (*twin.parameters(), *twin.buffers())} == {"ort"}
    moved = twin(**{name: t.to("ort") for name, t in given.items()})
    torch.testing.assert_close(moved.logits.cpu(), wanted)
    back = twin.cpu()
    assert torch.equal(back(**given).logits, wanted)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), back.parameters(), strict=True))


def test_batches_of_a_data_loader() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(10.0).reshape(5, 2), torch.arange(5))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(0))
    seen = [(x.to("ort", non_blocking=True), y.to("ort")) for x, y in loader]
    assert sorted(torch.cat([y for _, y in seen]).tolist()) == [0, 1, 2, 3, 4]
    assert all(x.is_ort and torch.equal(x[:, 0].cpu(), 2.0 * y.cpu()) for x, y in seen)
    there = torch.utils.data.TensorDataset(*(t.to("ort") for t in data.tensors))
    assert [x.device.type for x, _ in torch.utils.data.DataLoader(there, batch_size=5)] == ["ort"]


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_training_under_autocast(dtype: Any) -> None:
    torch.manual_seed(0)
    model, batch = llama()
    model.to("ort")
    steering = torch.optim.SGD(model.parameters(), 0.05)
    losses: list[float] = []
    for _ in range(4):
        steering.zero_grad()
        with torch.autocast("ort", dtype=dtype):
            loss = model(**{name: t.to("ort") for name, t in batch(0).items()})["loss"]
        loss.backward()
        steering.step()
        losses.append(loss.item())
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    assert losses[-1] < losses[0]
