"""The cases that ship with the installed onnx, as plain data, and the families that bars are stated for.

Input: the onnx package. Output: `load_cases()`, `families()`. Invariant: families follow from the op declarations; no
case is named by hand.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from smelt.ops import declarations

FAMILIES = ("elementwise", "reduction", "normalization", "movement", "shape")
OPSETS = range(7, 27)
KINDS = ("node", "real", "simple", "pytorch-converted", "pytorch-operator")
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
_WHOLE = frozenset(
    getattr(onnx.TensorProto, name)
    for name in ("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
)


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    rtol: float
    atol: float
    source: Any

    def model(self) -> onnx.ModelProto:
        if self.source.model is not None:
            return self.source.model
        return onnx.load(self._path())

    def _path(self) -> Path:
        if self.source.model_dir is not None:
            return Path(self.source.model_dir) / "model.onnx"
        return DATA / "light" / Path(self.source.url).name

    def data(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Inputs in the model's order with the outputs that are right."""
        if self.source.data_sets is not None:
            for inputs, outputs in self.source.data_sets:
                yield [_array(i) for i in inputs], [_array(o) for o in outputs]
        elif self.source.model_dir is not None:
            yield from self._stored()
        else:
            yield self._light()

    def _stored(self) -> Iterator[tuple[list[Any], list[Any]]]:
        graph = self.model().graph
        for folder in sorted(glob.glob(str(Path(self.source.model_dir) / "test_data_set*"))):
            yield _read_all(folder, "input", graph.input), _read_all(folder, "output", graph.output)

    def _light(self) -> tuple[list[Any], list[Any]]:
        """Models without weights come with the outputs for one ramp of an input."""
        path, graph = self._path(), self.model().graph
        constants = {i.name for i in graph.initializer}
        free = [i for i in graph.input if i.name not in constants]
        inputs = [Runner.generate_dummy_data(i) for i in free]
        names = [f"{path.with_suffix('')}_output_{k}.pb" for k in range(len(graph.output))]
        return inputs, [_tensor(Path(name).read_bytes()) for name in names]


def load_cases() -> list[Case]:
    found = [
        Case(case.name, kind, case.rtol, case.atol, case) for kind in KINDS for case in load_model_tests(kind=kind)
    ]
    return sorted(found, key=lambda case: case.name)


def family_ops() -> frozenset[tuple[str, str]]:
    return frozenset((d.domain, d.name) for d in declarations() if d.kind in FAMILIES)


def families(model: onnx.ModelProto) -> frozenset[str]:
    """`float32` or `whole` when the case belongs to a bar: every node of a declared family, and every type alike."""
    ops = family_ops()
    domain_version = {o.domain: o.version for o in model.opset_import}
    if domain_version.get("", domain_version.get("ai.onnx", 0)) not in OPSETS:
        return frozenset()
    if any(("" if n.domain == "ai.onnx" else n.domain, n.op_type) not in ops for n in model.graph.node):
        return frozenset()
    types = {_type(v) for v in (*model.graph.input, *model.graph.output)}
    if types and types <= _WHOLE:
        return frozenset({"whole"})
    floats = {t for t in types if t not in _WHOLE}
    return frozenset({"float32"}) if floats == {onnx.TensorProto.FLOAT} else frozenset()


def _type(value: onnx.ValueInfoProto) -> int:
    return value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else -1


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _tensor(data: bytes) -> np.ndarray:
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _read_all(folder: str, stem: str, infos: Any) -> list[Any]:
    count = len(glob.glob(f"{folder}/{stem}_*.pb"))
    return [_read(Path(folder) / f"{stem}_{k}.pb", infos[k].type) for k in range(count)]


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return _tensor(data)
