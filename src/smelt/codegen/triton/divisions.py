"""Divisions of integers without a look at the divisors, which a CPU takes before: a GPU's kernel cannot tell its host.

Input: a call of Div or Mod. Output: `RULES`, by domain and op. Invariant: floats stay with their declarations; an
integer divided by 0 gives 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from smelt.ir.kernel import Tensor
from smelt.ir.kernel import expr as E
from smelt.ops import Call
from smelt.ops.analysis import OwnRules
from smelt.ops.elementwise import same_type


def _quotient(call: Call) -> Sequence[Tensor | None] | None:
    return _of_integers(call, "div")


def _rest(call: Call) -> Sequence[Tensor | None] | None:
    return _of_integers(call, "fmod" if call.int("fmod", 0) else "mod")


def _of_integers(call: Call, name: str) -> Sequence[Tensor | None] | None:
    a, b = same_type(call.x(0), call.x(1))
    return None if a.dtype in E.FLOATS else (call.k.map(lambda x, y: E.op(name, x, y), a, b),)


RULES: Final[OwnRules] = MappingProxyType({("", "Div"): _quotient, ("", "Mod"): _rest})
