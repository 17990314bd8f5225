"""The zoo's torch modules, and their ONNX files.

Input: a `ZooModel` and a scale. Output: a module in evaluation mode whose positional arguments are the model's inputs,
or a file written by torch's exporter. Invariant: the same seed gives the same weights in every process.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from smelt.bench.architectures import Scale, ZooModel

Array = np.ndarray[Any, Any]


def build(entry: ZooModel, scale: Scale) -> Any:
    import torch

    cast("Any", torch).manual_seed(0)
    if not entry.model:
        from smelt.bench.unet import unet_block

        return unet_block(entry.settings(scale)).eval()
    model = _transformer(entry, scale)
    if entry.lively:
        _enliven(model)
    found = _with_past(model) if entry.past else _positional(model, entry.inputs, entry.outputs)
    return found.eval()


def _transformer(entry: ZooModel, scale: Scale) -> Any:
    import transformers

    library = cast("Any", transformers)
    library.logging.set_verbosity_error()
    return getattr(library, entry.model)(_configuration(entry, scale))


def _configuration(entry: ZooModel, scale: Scale) -> Any:
    import transformers

    return getattr(cast("Any", transformers), entry.config)(**entry.settings(scale))


def attention_sizes_of(entry: ZooModel, scale: Scale) -> tuple[int, int]:
    """Heads and width; zeros for what has none."""
    if not entry.config:
        return 0, 0
    settings = _configuration(entry, scale)
    return int(getattr(settings, "num_attention_heads", 0)), int(getattr(settings, "hidden_size", 0))


def _enliven(model: Any) -> None:
    """Running statistics, offsets and layer scales start at 0, 1 or 1e-6, and would hide what is behind them."""
    import torch

    library = cast("Any", torch)
    with library.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("running_var", "normalization.weight", "layernorm.weight")):
                value.uniform_(0.6, 1.4)
            elif name.endswith(("running_mean", "normalization.bias", "layernorm.bias")):
                value.normal_(0.0, 0.1)
            elif name.endswith("layer_scale_parameter"):
                value.uniform_(0.1, 0.4)


def _positional(model: Any, names: tuple[str, ...], outputs: int) -> Any:
    import torch

    class Positional(torch.nn.Module):
        """Fixes the order of the inputs and keeps the first outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            found = self.model(**dict(zip(names, values, strict=True)), return_dict=False)
            return found[0] if outputs == 1 else tuple(found[:outputs])

    return Positional()


def _with_past(model: Any) -> Any:
    import torch
    from transformers.cache_utils import DynamicCache

    class WithPast(torch.nn.Module):
        """Keys and values are plain arguments and results, as in a served file."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> Any:
            cache = cast("Any", DynamicCache)(list(zip(past[::2], past[1::2], strict=True)))
            found = self.model(
                input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
            )
            present = (part for layer in found.past_key_values.layers for part in (layer.keys, layer.values))
            return (found.logits, *present)

    return WithPast()


def write(entry: ZooModel, scale: Scale, shown: Mapping[str, Array], path: Path) -> None:
    """Export the module at the sizes of `shown`, with every size free that a user may want to change."""
    import torch

    library = cast("Any", torch)
    arguments = tuple(library.from_numpy(array) for array in shown.values())
    with warnings.catch_warnings(), library.no_grad():
        warnings.simplefilter("ignore")
        library.onnx.export(
            build(entry, scale), arguments, str(path), input_names=list(entry.input_names(scale)),
            output_names=list(entry.output_names(scale)) or None, dynamo=True, external_data=True, verbose=False,
            dynamic_shapes=_free_sizes(entry, len(arguments)),
        )  # fmt: skip
    if entry.past:
        _name_sum(path)


def _name_sum(path: Path) -> None:
    """The mask is as long as past and new tokens together; torch gives that size a name of its own."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    mask = next(value for value in model.graph.input if value.name == "attention_mask")
    mask.type.tensor_type.shape.dim[1].dim_param = "past + seq"
    onnx.save(model, str(path))


def _free_sizes(entry: ZooModel, inputs: int) -> tuple[Any, ...]:
    import torch

    dim = cast("Any", torch).export.Dim
    batch, length = dim("batch", min=1, max=512), dim("seq", min=2, max=512)
    if entry.past:
        new, past = dim("seq", min=1, max=512), dim("past", min=0, max=1024)
        behind = tuple({0: batch, 2: past} for _ in range(inputs - 2))
        return {0: batch, 1: new}, {0: batch, 1: dim.AUTO}, behind
    sizes = tuple({0: batch, 1: length} if entry.takes_tokens else {0: batch} for _ in range(inputs))
    # What `forward(*values)` takes is one argument to the exporter.
    return (sizes,) if entry.model else sizes
