"""onnxscript's torchlib as a fallback: the only user of torch's private exporter API.

Input: a torch target and arguments as values and Python objects. Output: values appended to the builder, or `Refused`.
Invariant: every private name is looked up at call time and a missing one is a refusal, never a crash: torchlib is
optional.
"""

# What torch and sympy hand over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import onnx_ir as ir
import sympy
import torch

from smelt.export.builder import Builder
from smelt.export.dtypes import to_onnx
from smelt.export.records import Refused
from smelt.export.sizes import Sizes


@lru_cache(maxsize=4)
def _registry(opset: int) -> Any:
    try:
        from torch.onnx._internal.exporter import _registration
    except ImportError as error:
        raise Refused("torchlib is not installed (pip install onnxscript)") from error
    logger = logging.getLogger(_registration.__name__)
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of every optional package that is not installed
    try:
        # The registry keeps the newest form up to its opset.
        return _registration.ONNXRegistry.from_torchlib(opset_version=max(opset, 18))
    finally:
        logger.setLevel(level)


def targets(opset: int) -> list[str]:
    """Names of all targets that torchlib converts."""
    try:
        functions: dict[Any, Any] = _registry(opset).functions
    except Refused:
        return []
    return sorted(name for name in functions if isinstance(name, str))


def lower(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_complex: bool, sizes: Sizes) -> Any:
    """The values that torchlib makes of a call, appended to the builder."""
    found = [meta for meta in _registry(sizes.builder.opset).get_decomps(target) if meta.is_complex == is_complex]
    if not found:
        raise Refused("torchlib has no conversion")
    from onnxscript import evaluator, values
    from torch.onnx._internal.exporter import _building

    builder = sizes.builder
    recorder: Any = _building.OpRecorder(values.Opset("", builder.opset), {})
    given = [_argument(arg, sizes) for arg in args]
    named = {name: _named(name, _argument(arg, sizes)) for name, arg in kwargs.items()}
    try:
        with evaluator.default_as(recorder):
            result = found[0].onnx_function(*given, **named)
    except Exception as error:
        raise Refused(f"torchlib failed: {_first_line(error)}") from error
    return _adopt(builder, recorder, result)


def _named(name: str, value: Any) -> Any:
    return -1 if name == "dtype" and value is None else value


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _argument(arg: Any, sizes: Sizes) -> Any:
    if isinstance(arg, (list, tuple)):
        return [_argument(item, sizes) for item in arg]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(arg, torch.dtype):
        return to_onnx(arg)
    if isinstance(arg, (torch.device, torch.memory_format, torch.layout)):
        return str(arg)
    if isinstance(arg, sympy.Basic):
        return sizes.scalar(arg)
    return arg


def _adopt(builder: Builder, recorder: Any, result: Any) -> Any:
    """Build the recorded nodes anew, so that types, constants and casts are as everywhere else; the new results."""
    for identifier, function in recorder.functions.items():
        if identifier not in builder.functions:
            known = isinstance(function, ir.Function)
            made = function if known else ir.serde.deserialize_function(function.to_function_proto())
            builder.functions[identifier] = made
            builder.domains.add(identifier[0])
    places: dict[ir.Value, ir.Value] = {}
    for node in recorder.nodes:
        if any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
            raise Refused("torchlib's conversion holds a subgraph")
        places.update(zip(node.outputs, _again(builder, node, places), strict=True))
    return _placed(result, places)


def _again(builder: Builder, node: ir.Node, places: dict[ir.Value, ir.Value]) -> tuple[ir.Value, ...]:
    attributes: dict[str, Any] = dict(node.attributes)
    if node.op_type == "Constant" and "value" in attributes:
        tensor = attributes["value"].as_tensor()
        return (builder.constant(tensor.numpy(), tensor.dtype),)
    inputs = [places.get(value, value) if value is not None else None for value in node.inputs]
    _modernize(builder, node.op_type, inputs, attributes)
    made = builder.node(node.op_type, inputs, attributes, domain=node.domain, outputs=len(node.outputs))
    return made if isinstance(made, tuple) else (made,)


def _modernize(builder: Builder, op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    """torchlib writes opset 18; what later opsets say differently."""
    if builder.opset >= 20 and op_type == "DFT" and "axis" in attributes:
        axis = builder.constant(attributes.pop("axis").as_int(), ir.DataType.INT64)
        inputs += [None] * (2 - len(inputs)) + [axis]
    if builder.opset >= 20 and op_type == "GridSample" and "mode" in attributes:
        mode = attributes["mode"].as_string()
        attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


def _placed(result: Any, places: dict[ir.Value, ir.Value]) -> Any:
    if isinstance(result, (list, tuple)):
        return [_placed(item, places) for item in result]  # pyright: ignore[reportUnknownVariableType]
    return places.get(result, result) if isinstance(result, ir.Value) else result
