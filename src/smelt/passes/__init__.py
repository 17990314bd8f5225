"""Model -> Model. The one table of passes, in the order in which they run.

A pass is named by its module: `fold_constants.py`, `FoldConstants`, `fold-constants`. A rule (`rewrites/`) is a pass of
one pattern. Sets name what belongs together: `default` runs unless something else is chosen, `ort` makes nodes of ONNX
Runtime's own, `training` is for graphs whose weights are inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import onnx_ir as ir

from smelt.base.errors import ConfigError, PassError, SmeltError
from smelt.passes.bind_dims import BindDims
from smelt.passes.blocked_weights import BlockedWeights
from smelt.passes.common_subexpressions import CommonSubexpressions
from smelt.passes.constants_to_initializers import ConstantsToInitializers
from smelt.passes.dedupe_initializers import DedupeInitializers
from smelt.passes.eliminate_identity import EliminateIdentity
from smelt.passes.flush_subnormals import FlushSubnormals
from smelt.passes.fold_channel_affine import FoldChannelAffine
from smelt.passes.fold_constants import FoldConstants
from smelt.passes.fold_padding import FoldPadding
from smelt.passes.fold_weights import FoldWeights
from smelt.passes.freeze_initializers import FreezeInitializers
from smelt.passes.fuse_transposes import FuseTransposes
from smelt.passes.infer_shapes import InferShapes
from smelt.passes.inline_branches import InlineBranches
from smelt.passes.inline_functions import InlineFunctions
from smelt.passes.legacy_initializers import LegacyInitializers
from smelt.passes.merge_parallel_convolutions import MergeParallelConvolutions
from smelt.passes.narrow import (
    LAYERS,
    PREPARED,
    STATIC,
    WIDE,
    WIDER,
    check_narrow,
    name_nodes,
    narrow_layers,
    narrowed_notes,
    read_budget,
)
from smelt.passes.narrow import narrow as _narrow
from smelt.passes.order_groups import OrderGroups
from smelt.passes.ort_cast import OrtCast, cast_for_stock
from smelt.passes.ort_preoptimize import ort_preoptimize
from smelt.passes.outline_modules import OutlineModules, wanted_classes
from smelt.passes.quantize_weights import Moments, Quantized, weighted_products
from smelt.passes.recompose_gelu import RecomposeGelu
from smelt.passes.recompose_layer_norm import RecomposeLayerNorm
from smelt.passes.recompose_rms_norm import RecomposeRmsNorm
from smelt.passes.remove_unused import RemoveUnused
from smelt.passes.rewriter.applications import Applications
from smelt.passes.rewriter.outcome import Outcome, Pass
from smelt.passes.rewriter.rules import Rule
from smelt.passes.rewriter.selection import Entry, Patterns, Table, spelled
from smelt.passes.rewrites.einsum_to_matmul import EINSUM_TO_MATMUL
from smelt.passes.rewrites.fourier_to_products import FOURIER_TO_PRODUCTS
from smelt.passes.rewrites.gather_by_ranges import GATHER_BY_RANGES
from smelt.passes.rewrites.merge_axes import MERGE_AXES
from smelt.passes.rewrites.merge_casts import MERGE_CASTS
from smelt.passes.rewrites.neutral_elements import NEUTRAL_ELEMENTS
from smelt.passes.rewrites.ort_activations import ORT_ACTIVATIONS
from smelt.passes.rewrites.ort_attention import ORT_ATTENTION
from smelt.passes.rewrites.ort_normalization import ORT_NORMALIZATION
from smelt.passes.rewrites.ort_products import ORT_PRODUCTS
from smelt.passes.round_trip import round_trip, rounded_rows
from smelt.passes.scale_products import ScaleProducts
from smelt.passes.simplify_shapes import SimplifyShapes
from smelt.passes.split_transposed_convolutions import SplitTransposedConvolutions

_BOTH: Final = ("default", "training")
_MAKERS: Final[Mapping[str, type[Pass] | Rule]] = {
    "legacy-initializers": LegacyInitializers,
    "inline-functions": InlineFunctions,
    "freeze-initializers": FreezeInitializers,
    "constants-to-initializers": ConstantsToInitializers,
    "infer-shapes": InferShapes,
    "eliminate-identity": EliminateIdentity,
    "einsum-to-matmul": EINSUM_TO_MATMUL,
    **{rule.name: rule for rule in FOURIER_TO_PRODUCTS},
    "blocked-weights": BlockedWeights,
    "order-groups": OrderGroups,
    "fold-constants": FoldConstants,
    "fold-weights": FoldWeights,
    "fold-channel-affine": FoldChannelAffine,
    "fold-padding": FoldPadding,
    "merge-parallel-convolutions": MergeParallelConvolutions,
    "split-transposed-convolutions": SplitTransposedConvolutions,
    "simplify-shapes": SimplifyShapes,
    "inline-branches": InlineBranches,
    "fuse-transposes": FuseTransposes,
    "dedupe-initializers": DedupeInitializers,
    "common-subexpressions": CommonSubexpressions,
    "neutral-elements": NEUTRAL_ELEMENTS,
    **{rule.name: rule for rule in MERGE_AXES},
    "merge-casts": MERGE_CASTS,
    "gather-by-ranges": GATHER_BY_RANGES,
    "scale-products": ScaleProducts,
    "recompose-gelu": RecomposeGelu,
    "recompose-layer-norm": RecomposeLayerNorm,
    "recompose-rms-norm": RecomposeRmsNorm,
    **{rule.name: rule for rule in (*ORT_ATTENTION, *ORT_NORMALIZATION, *ORT_ACTIVATIONS, *ORT_PRODUCTS)},
    "ort-cast": OrtCast,
    "flush-subnormals": FlushSubnormals,
    "remove-unused": RemoveUnused,
}


def _entry(name: str, made: type[Pass] | Rule) -> Entry:
    if isinstance(made, Rule):
        return Entry(name, lambda: made, made.sets, made.text or _first_line(made.apply))
    return Entry(name, made, getattr(made, "sets", _BOTH), _first_line(made))


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0].rstrip(".")


TABLE: Final = Table({name: _entry(name, made) for name, made in _MAKERS.items()})
PASSES: Final[Mapping[str, Callable[[], Pass]]] = {entry.name: entry.make for entry in TABLE.entries.values()}

MAX_ROUNDS = 3
MAX_ROUNDS_OF_BRANCHES = 12  # while branches of If are put in its place: what they hold was not seen before


def run_passes(
    model: ir.Model, *, only: Iterable[str] | None = None, skip: Iterable[str] = (), patterns: Patterns | None = None,
    dump: Path | None = None,
) -> list[tuple[str, Outcome]]:  # fmt: skip
    """Run what is chosen in order, again while it changes something; returns what each pass did.

    `patterns` is a selector such as "default+ort"; `only` names passes instead. `dump` is a folder that gets a text
    file for every place that was changed.
    """
    chosen = _chosen(only, skip, patterns)
    run = _plain if dump is None else Applications(dump).run
    done: list[tuple[str, Outcome]] = []
    for round_ in range(MAX_ROUNDS_OF_BRANCHES):
        outcomes = [(name, _timed(run, name, make(), model)) for name, make in chosen]
        done.extend((name, outcome) for name, outcome in outcomes if outcome.modified)
        if not any(outcome.modified for name, outcome in outcomes if name != "infer-shapes"):
            break
        if round_ + 1 >= MAX_ROUNDS and not any(o.modified for name, o in outcomes if name == "inline-branches"):
            break
    return done


def narrow(model: ir.Model, precision: str, accuracy: str) -> tuple[str, ...]:
    """Narrower weights and activations where they are asked for; notes for the report."""
    return _narrow(model, precision, accuracy, lambda given: run_passes(given, only=PREPARED))


def prepare_to_narrow(model: ir.Model) -> None:
    """What comes before weights are narrowed; then layers have names of their own."""
    run_passes(model, only=PREPARED)
    name_nodes(model)


def _plain(name: str, step: Pass, model: ir.Model) -> Outcome:
    del name
    return step(model)


def _timed(run: Callable[[str, Pass, ir.Model], Outcome], name: str, step: Pass, model: ir.Model) -> Outcome:
    started = time.perf_counter()
    try:
        outcome = run(name, step, model)
    except SmeltError:
        raise
    except Exception as error:
        raise PassError(name, error) from error
    return replace(outcome, seconds=time.perf_counter() - started)


def _chosen(
    only: Iterable[str] | None, skip: Iterable[str], patterns: Patterns | None
) -> list[tuple[str, Callable[[], Pass]]]:
    listed, unwanted = None if only is None else list(only), set(skip)
    for name in sorted({*(listed or ()), *unwanted} - set(TABLE.names())):
        raise ConfigError("SM-PASS-002", f"there is no pass {name!r}", hint="Passes: " + ", ".join(PASSES))
    chosen = TABLE.chosen(patterns if listed is None else listed)
    return [(name, make) for name, make in chosen if name not in unwanted]


__all__ = [
    "LAYERS",
    "PASSES",
    "STATIC",
    "TABLE",
    "WIDE",
    "WIDER",
    "BindDims",
    "Moments",
    "Outcome",
    "OutlineModules",
    "Pass",
    "Patterns",
    "Quantized",
    "Rule",
    "cast_for_stock",
    "check_narrow",
    "narrow",
    "narrow_layers",
    "narrowed_notes",
    "ort_preoptimize",
    "prepare_to_narrow",
    "read_budget",
    "round_trip",
    "rounded_rows",
    "run_passes",
    "spelled",
    "wanted_classes",
    "weighted_products",
]  # fmt: skip
