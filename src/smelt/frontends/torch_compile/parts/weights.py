"""Panels of weights that are inputs, kept as long as the weights do not change.

Input: which inputs of a session take the panels of which argument. Output: `FedWeights`, which gives the panels for the
arguments of a call. Invariant: panels belong to the storage and version of the tensor that is given; after any change
that torch counts (an optimizer step, `load_state_dict`, in-place arithmetic) they are made anew. What writes behind
torch's back (`.data`, numpy) needs `smelt.refresh`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

from smelt.codegen import FedPanels, packed_array

Change = Callable[[Any], Any]
_NARROW: Final = {"bf16": (torch.bfloat16, ml_dtypes.bfloat16), "f16": (torch.float16, np.float16)}
_live: Final[weakref.WeakSet[FedWeights]] = weakref.WeakSet()


@dataclass
class _Kept:
    """Panels made from a tensor as it was. A storage may be given to another tensor once its own is gone."""

    weight: weakref.ref[torch.Tensor]
    pointer: int
    version: int
    panels: torch.Tensor


class FedWeights:
    """The panels of one session's weights. `places` are the arguments that the weights come as."""

    def __init__(self, fed: Sequence[FedPanels], places: Sequence[int], before: Sequence[Change | None]) -> None:
        self.fed = tuple(fed)
        self.places = tuple(places)
        self._before = tuple(before)
        self._kept: list[_Kept | None] = [None] * len(self.fed)
        _live.add(self)

    def panels(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """One tensor per fed input, in order."""
        return [self._panels(at, args[place]) for at, place in enumerate(self.places)]

    def _panels(self, at: int, weight: torch.Tensor) -> torch.Tensor:
        kept = self._kept[at]
        version = _version(weight)
        if (
            kept is not None
            and kept.version == version
            and kept.pointer == weight.data_ptr()
            and kept.weight() is weight
        ):
            return kept.panels
        panels = self._packed(at, weight)
        known = None if version is None else _Kept(weakref.ref(weight), weight.data_ptr(), version, panels)
        self._kept[at] = known
        return panels

    def _packed(self, at: int, weight: torch.Tensor) -> torch.Tensor:
        change = self._before[at]
        plain = weight.detach() if change is None else change(weight.detach())
        return _panels_of(plain, self.fed[at].layout)

    def forget(self, pointers: set[int] | None = None) -> None:
        """Drop panels of the given storages, or all."""
        for at, kept in enumerate(self._kept):
            if kept is not None and (pointers is None or kept.pointer in pointers):
                self._kept[at] = None


def _panels_of(plain: torch.Tensor, layout: str) -> torch.Tensor:
    """In float32, or in the weight's own type where the layout says so; numpy knows bfloat16 by another package."""
    kind = layout.partition(":")[0]
    if kind not in _NARROW:
        return torch.from_numpy(packed_array(plain.float().cpu().numpy(), layout))
    dtype, known = _NARROW[kind]
    stored = plain.to(dtype).contiguous().view(torch.int16).cpu().numpy().view(known)
    return torch.from_numpy(packed_array(stored, layout).view(np.int16)).view(dtype)


def _version(weight: torch.Tensor) -> int | None:
    """How often torch saw the tensor change; None for tensors of inference mode, which it does not watch."""
    return None if weight.is_inference() else weight._version


def forget_panels(pointers: set[int] | None) -> None:
    """Drop kept panels everywhere."""
    for weights in list(_live):
        weights.forget(pointers)
