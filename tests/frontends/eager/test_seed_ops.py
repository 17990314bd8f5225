"""Every op of the eager mode that ONNX Runtime once had, in each of its forms, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.eager.seed_ops import SEED_OPS, SeedOp  # noqa: E402

import smelt.frontends.eager as eager  # noqa: E402


def on_device(value: Any) -> Any:
    return value.to("ort") if isinstance(value, torch.Tensor) else value


def same(got: Any, wanted: Any) -> None:
    if isinstance(wanted, torch.Tensor):
        assert got.device.type == "ort"
        torch.testing.assert_close(got.cpu(), wanted, equal_nan=True)
    else:
        assert got == pytest.approx(wanted)


@pytest.mark.parametrize("op", SEED_OPS, ids=lambda op: op.name)
def test_functional(op: SeedOp) -> None:
    eager.reset_counts()
    given = [on_device(a) for a in op.args]
    same(op.call(*given), op.call(*op.args))
    if op.native:
        assert eager.natives(), f"{op.name} did not run in ONNX Runtime: {eager.fallbacks()}"


@pytest.mark.parametrize("op", [o for o in SEED_OPS if o.in_place], ids=lambda op: op.name)
def test_in_place(op: SeedOp) -> None:
    assert op.in_place is not None
    target = op.args[0].clone()
    moved = on_device(op.args[0].clone())
    where = moved.data_ptr()
    rest = [on_device(a) for a in op.args[1:]]
    wanted = getattr(target, op.in_place)(*op.args[1:])
    got = getattr(moved, op.in_place)(*rest)
    assert got is moved and moved.data_ptr() == where
    same(moved, wanted)


@pytest.mark.parametrize("op", [o for o in SEED_OPS if o.out], ids=lambda op: op.name)
def test_out(op: SeedOp) -> None:
    wanted = op.call(*op.args)
    given = [on_device(a) for a in op.args]
    for room in (torch.empty(0, dtype=wanted.dtype), torch.empty_like(wanted), torch.empty(wanted.shape[::-1]).t()):
        out = room.to(wanted.dtype).to("ort")
        assert op.call(*given, out=out) is out
        same(out, wanted)
    with pytest.raises(RuntimeError, match="shape"):
        op.call(*given, out=torch.empty(7, dtype=wanted.dtype, device="ort"))


def test_the_list_is_whole() -> None:
    assert len({op.name for op in SEED_OPS}) == 86
