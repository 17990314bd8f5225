"""Modules in bfloat16 and float16, and autocast: products in kernels, weights in their own type."""

from __future__ import annotations

import warnings

import pytest
import torch

ROUNDING = {torch.bfloat16: 4e-2, torch.float16: 5e-3}


class Block(torch.nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, wide), torch.nn.Linear(wide, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    found, wanted = found.double(), wanted.double()
    return float(((found - wanted).abs() / (wanted.abs() + wanted.square().mean().sqrt())).max())


@pytest.mark.parametrize("wide", [96, 97])  # whole panels and pairs, and none of them
@pytest.mark.parametrize("dtype", ROUNDING)
def test_modules_of_16_bits_run_in_kernels_and_see_changed_weights(dtype: torch.dtype, wide: int) -> None:
    torch.manual_seed(1)
    module = Block(wide).to(dtype).eval()
    fast = torch.compile(module, backend="smelt", options={"kernels": True})
    x = torch.randn(9, 64).to(dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            plain = Block(wide).double()
            plain.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
            made = fast(x)
            assert made.dtype == dtype
            assert error(made, plain(x.double())) < ROUNDING[dtype]
            module.up.weight.mul_(2)


def test_autocast_is_followed() -> None:
    torch.manual_seed(2)
    module = Block(96).eval()
    fast = torch.compile(module, backend="smelt", options={"kernels": True})
    x = torch.randn(9, 64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        made, wanted = fast(x), module(x)
    assert made.dtype == wanted.dtype
    assert error(made, wanted) < ROUNDING[torch.bfloat16]
