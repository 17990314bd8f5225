"""smelt as an ONNX backend: `onnx.backend.base.Backend`, as onnxruntime's own module is one.

Input: a ModelProto and inputs in the model's order. Output: the model's outputs. Invariant: `SMELT_FORCE` and the
other knobs hold here as everywhere; what cannot be compiled runs on ONNX Runtime, so results exist wherever it has any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from smelt.base.errors import ConfigError, InputError
from smelt.frontends import CompiledModel, compile

# Newer ones are in onnx before ONNX Runtime reads them.
NEWEST_OPSET: Final = 26


class SmeltRep(BackendRep):
    """A prepared model."""

    def __init__(self, compiled: CompiledModel) -> None:
        self.compiled = compiled

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`inputs` is a list in the model's order, a mapping by name, or one array."""
        del kwargs
        several = isinstance(inputs, (Mapping, list, tuple))
        return tuple(self.compiled.run(cast("Any", inputs) if several else [inputs]))


class SmeltBackend(Backend):
    """Options of `smelt.compile` are taken as keywords."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        del model, kwargs
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str | None = "CPU", **kwargs: Any) -> SmeltRep:
        if not cls.supports_device(device or "CPU"):
            raise ConfigError("SM-CONFIG-006", f"there is no device {device!r}; smelt's kernels run on the CPU")
        return SmeltRep(compile(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str | None = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None, **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """One node of the newest opset that runs, or of `opset_version`."""
        arrays = [np.asarray(value) for value in inputs]
        model = _node_model(node, arrays, outputs_info, kwargs.pop("opset_version", None))
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0].upper() == "CPU"


def _node_model(
    node: onnx.NodeProto, arrays: Sequence[np.ndarray[Any, Any]],
    outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None, opset: int | None,
) -> onnx.ModelProto:  # fmt: skip
    names = [name for name in node.input if name]
    if len(names) != len(arrays):
        raise InputError("SM-INPUT-001", f"{node.op_type} takes {len(names)} inputs, {len(arrays)} were given")
    inputs = [_value_info(name, array.dtype, array.shape) for name, array in zip(names, arrays, strict=True)]
    named = [name for name in node.output if name]
    if outputs_info is not None:
        outputs = [_value_info(name, *info) for name, info in zip(named, outputs_info, strict=True)]
    else:
        outputs = [onnx.ValueInfoProto(name=name) for name in named]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    version = opset or min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    imports = [onnx.helper.make_opsetid("", version)]
    if node.domain:
        imports.append(onnx.helper.make_opsetid(node.domain, 1))
    model = onnx.helper.make_model_gen_version(graph, opset_imports=imports)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _value_info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


prepare = SmeltBackend.prepare
run_model = SmeltBackend.run_model
run_node = SmeltBackend.run_node
supports_device = SmeltBackend.supports_device
is_compatible = SmeltBackend.is_compatible
