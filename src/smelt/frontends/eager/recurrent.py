"""Cells of LSTM and GRU. PyTorch fuses them on every device but the CPU, and has such kernels only for GPUs.

Input: gates of the input and of the hidden state. Output: the new state and, as PyTorch wants it, a tensor for its own
gradient, which is not used here. Invariant: each step is an op of its own, so that autograd sees the parts.
"""

from __future__ import annotations

from typing import Any, Final

import torch

Tensor = torch.Tensor


def _gates(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def _lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    gates = _gates(input_gates, input_bias) + _gates(hidden_gates, hidden_bias)
    taken, kept, new, shown = gates.chunk(4, 1)
    cy = kept.sigmoid() * cx + taken.sigmoid() * new.tanh()
    return shown.sigmoid() * cy.tanh(), cy, gates.detach()


def _gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    given = _gates(input_gates, input_bias)
    reset, update, new = given.chunk(3, 1)
    hidden_reset, hidden_update, hidden_new = _gates(hidden_gates, hidden_bias).chunk(3, 1)
    candidate = (new + (reset + hidden_reset).sigmoid() * hidden_new).tanh()
    return candidate + (update + hidden_update).sigmoid() * (hx - candidate), given.detach()


CELLS: Final = {"_thnn_fused_lstm_cell": _lstm_cell, "_thnn_fused_gru_cell": _gru_cell}


def register_cells(key: str) -> list[Any]:
    """For autograd too, so that PyTorch does not look for the gradient of a fused cell."""
    library = torch.library.Library("aten", "IMPL")
    for name, cell in CELLS.items():
        library.impl(name, cell, f"Autograd{key}")
    return [library]
