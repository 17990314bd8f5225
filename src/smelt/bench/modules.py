"""The torch module behind a model, for the peers that run torch.

Input: a module's name (`zoo:bert-base:full`, `micro`) and the model file. Output: a torch module whose positional
arguments are the model's inputs. Invariant: it computes with the file's weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from smelt.bench import zoo


def module_of(name: str, model: Path) -> Any:
    kind, _, rest = name.partition(":")
    if kind == "zoo":
        entry, _, scale = rest.partition(":")
        return zoo.module(entry, cast("zoo.Scale", scale))
    return _translate(model)


def attention_sizes_of(name: str) -> tuple[int, int]:
    """Heads and width of a module of the zoo; zeros for any other."""
    kind, _, rest = name.partition(":")
    entry, _, scale = rest.partition(":")
    return zoo.attention_sizes(entry, cast("zoo.Scale", scale)) if kind == "zoo" else (0, 0)


def _rules() -> dict[str, Callable[..., Any]]:
    import torch

    library = cast("Any", torch)

    def layer_norm(x: Any, weight: Any, bias: Any, **attributes: Any) -> Any:
        return library.nn.functional.layer_norm(x, weight.shape, weight, bias, attributes["epsilon"])

    def softmax(x: Any, **attributes: Any) -> Any:
        return library.softmax(x, attributes["axis"])

    names = ("abs", "add", "div", "erf", "exp", "matmul", "mul", "neg", "sqrt", "sub", "tanh")
    plain = {_SPELLED.get(name, name.capitalize()): getattr(library, name) for name in names}
    return {**plain, "LayerNormalization": layer_norm, "Softmax": softmax}


_SPELLED: Final = {"matmul": "MatMul"}


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _translate(path: Path) -> Any:
    """A module that applies the file's nodes in order; torch.compile unrolls it into one graph."""
    import onnx
    import torch
    from onnx import numpy_helper

    library, graph, rules = cast("Any", torch), onnx.load(str(path)).graph, _rules()
    steps = [(rules[n.op_type], tuple(n.input), n.output[0], _attributes(n)) for n in graph.node]
    names, outputs = [value.name for value in graph.input], [value.name for value in graph.output]
    weights = {tensor.name: library.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}

    class Translated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, tensor in weights.items():
                self.register_buffer(name, tensor)

        def forward(self, *values: Any) -> Any:
            known = dict(zip(names, values, strict=True)) | {name: getattr(self, name) for name in weights}
            for rule, inputs, output, attributes in steps:
                known[output] = rule(*(known[name] for name in inputs), **attributes)
            return tuple(known[name] for name in outputs)

    return Translated().eval()
