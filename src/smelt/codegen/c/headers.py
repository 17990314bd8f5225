"""Headers that a kernel's text needs beyond those that every unit includes.

Input: what a kernel is made of. Output: names of headers. Invariant: a unit includes what its kernels name, in one
order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from smelt.codegen.loops import Nest

PRODUCT: Final = "attention/loop_b2b_gemm.h"
ONLINE_SOFTMAX: Final = "attention/online_softmax.h"
HALF_PRODUCT: Final = "half/half_product.h"
WINDOW: Final = "conv/window.h"
HALF_WINDOW: Final = "half/half_convolution.h"
ARG_REDUCTION: Final = "vec/reduce_arg.h"
TRANSPOSE: Final = "gemm/transpose.h"
_ORDER: Final = (PRODUCT, ONLINE_SOFTMAX, HALF_PRODUCT, WINDOW, HALF_WINDOW, ARG_REDUCTION, TRANSPOSE)


def headers_of(*nests: Nest) -> frozenset[str]:
    """What the reductions of loop nests need."""
    kinds = (reduction.kind for nest in nests for reduction in nest.reductions)
    return frozenset((ARG_REDUCTION,)) if any(kind.startswith("arg") for kind in kinds) else frozenset()


def includes(headers: Iterable[str]) -> str:
    """The lines that include them, in a fixed order."""
    named = set(headers)
    return "".join(f"#include <smelt/{header}>\n" for header in _ORDER if header in named)
