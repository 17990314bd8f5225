"""Model -> Model. The one table of passes, in the order in which they run.

A pass is named by its module: `fold_constants.py`, `FoldConstants`, `fold-constants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import onnx_ir as ir

from smelt.base.errors import ConfigError
from smelt.passes.bind_dims import BindDims
from smelt.passes.common_subexpressions import CommonSubexpressions
from smelt.passes.constants_to_initializers import ConstantsToInitializers
from smelt.passes.dedupe_initializers import DedupeInitializers
from smelt.passes.eliminate_identity import EliminateIdentity
from smelt.passes.fold_constants import FoldConstants
from smelt.passes.fold_weights import FoldWeights
from smelt.passes.fuse_transposes import FuseTransposes
from smelt.passes.infer_shapes import InferShapes
from smelt.passes.inline_functions import InlineFunctions
from smelt.passes.legacy_initializers import LegacyInitializers
from smelt.passes.ort_preoptimize import ort_preoptimize
from smelt.passes.outcome import Outcome, Pass
from smelt.passes.recompose_gelu import RecomposeGelu
from smelt.passes.recompose_layer_norm import RecomposeLayerNorm
from smelt.passes.recompose_rms_norm import RecomposeRmsNorm
from smelt.passes.remove_unused import RemoveUnused
from smelt.passes.scale_products import ScaleProducts
from smelt.passes.simplify_shapes import SimplifyShapes

PASSES: Final[Mapping[str, Callable[[], Pass]]] = {
    "legacy-initializers": LegacyInitializers,
    "inline-functions": InlineFunctions,
    "constants-to-initializers": ConstantsToInitializers,
    "infer-shapes": InferShapes,
    "eliminate-identity": EliminateIdentity,
    "fold-constants": FoldConstants,
    "fold-weights": FoldWeights,
    "simplify-shapes": SimplifyShapes,
    "fuse-transposes": FuseTransposes,
    "dedupe-initializers": DedupeInitializers,
    "common-subexpressions": CommonSubexpressions,
    "scale-products": ScaleProducts,
    "recompose-gelu": RecomposeGelu,
    "recompose-layer-norm": RecomposeLayerNorm,
    "recompose-rms-norm": RecomposeRmsNorm,
    "remove-unused": RemoveUnused,
}

MAX_ROUNDS = 3


def run_passes(
    model: ir.Model, *, only: Iterable[str] | None = None, skip: Iterable[str] = ()
) -> list[tuple[str, Outcome]]:
    """Run the table in order, again while it changes something; returns what each pass did."""
    chosen = _chosen(only, skip)
    done: list[tuple[str, Outcome]] = []
    for _ in range(MAX_ROUNDS):
        outcomes = [(name, PASSES[name]()(model)) for name in chosen]
        done.extend((name, outcome) for name, outcome in outcomes if outcome.modified)
        if not any(outcome.modified for name, outcome in outcomes if name != "infer-shapes"):
            break
    return done


def _chosen(only: Iterable[str] | None, skip: Iterable[str]) -> list[str]:
    wanted, unwanted = set(PASSES if only is None else only), set(skip)
    for name in sorted((wanted | unwanted) - PASSES.keys()):
        raise ConfigError("SM-PASS-002", f"there is no pass {name!r}", hint="Passes: " + ", ".join(PASSES))
    return [name for name in PASSES if name in wanted - unwanted]


__all__ = ["PASSES", "BindDims", "Outcome", "Pass", "ort_preoptimize", "run_passes"]
