"""Memory of the device in other processes, and copies from pinned memory."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest

torch = pytest.importorskip("torch")

import smelt.frontends.eager as eager  # noqa: E402

assert eager.AVAILABLE


def test_what_is_sent_is_shared() -> None:
    base = torch.arange(6.0, device="ort")
    sent = {"base": base, "view": base[2:]}
    got = pickle.loads(bytes(ForkingPickler.dumps(sent)))
    got["view"].fill_(7)
    assert base.tolist() == [0, 1, 7, 7, 7, 7] and got["base"].is_ort
    base[0] = 5
    assert got["base"][0].item() == 5
    assert pickle.loads(bytes(ForkingPickler.dumps(torch.ones(0, device="ort")))).shape == (0,)


@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_a_data_loader_sends_tensors_of_the_device() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(6.0, device="ort").view(3, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, timeout=120)
    assert [batch[0].tolist() for batch in loader] == [[[0, 1], [2, 3]], [[4, 5]]]


def test_pinned_memory_is_plain_memory() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    batches = [x for (x,) in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)]
    assert torch.cat(batches).to("ort", non_blocking=True).tolist() == [0, 1, 2, 3]
