"""Safe loading: an untrusted ONNX model -> Model.

Input: a path, bytes, a ModelProto or an onnx_ir Model. Output: a verified `onnx_ir.Model` in topological order whose
external tensors are mapped, not read. Invariant: any input ends in such a model or in a SmeltError; nothing outside
the model's folder is opened.
"""

from __future__ import annotations

import copy
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import cast

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from smelt.base.errors import LoadError, ModelError, SmeltError
from smelt.ir._external import ExternalFolder, MappedTensor, check_location, location_of
from smelt.ir._proto_check import check_proto, check_text
from smelt.ir._sparse import without_sparse
from smelt.ir.order import is_sorted, sort_graph
from smelt.ir.proto import from_proto
from smelt.ir.signature import verify_signatures
from smelt.ir.type_check import verify_types
from smelt.ir.verifier import verify_model
from smelt.ir.walk import model_graphs, nested_graphs, scopes

MAX_PROTO_BYTES = (1 << 31) - 1
_ORT_DOMAIN = "com.microsoft"

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


def load_model(source: Source, *, base_dir: str | os.PathLike[str] | None = None) -> ir.Model:
    """Load and verify a model, which stays as it is; tensors are shared with it. `base_dir` is where external data lie
    when the model is not given by path."""
    if isinstance(source, ir.Model):
        return _finish(_apart(source.clone()), ExternalFolder(Path(base_dir)) if base_dir is not None else None)
    proto, folder = read_proto(source, base_dir)
    model = _convert(proto, folder)
    return _finish(_apart(model) if proto is source else model, folder)


def read_proto(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, base_dir: str | os.PathLike[str] | None = None
) -> tuple[onnx.ModelProto, ExternalFolder | None]:
    """The model as it was parsed, not yet checked, and where its external data lie."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _parse(_read(path)), ExternalFolder(path.parent if base_dir is None else Path(base_dir))
    folder = ExternalFolder(Path(base_dir)) if base_dir is not None else None
    return (_parse(source) if isinstance(source, bytes) else source), folder


def _folder_hint(path: Path) -> str:
    """What somebody probably wanted who gave a folder for a model."""
    with suppress(OSError):
        if (path / "manifest.json").is_file():
            return "It is an artifact, which is compiled already: `smelt run`, `smelt verify` and `smelt.load` take it."
        found = sorted([*path.glob("*.onnx"), *path.glob("onnx/*.onnx")])
        if found:
            return f"Name the file in it: {str(found[0])[:200]}"
        if (path / "config.json").is_file():
            return "It has no ONNX file; `smelt export FOLDER -o model.onnx` writes a Hugging Face model as one."
    return "Name an ONNX file."


def _read(path: Path) -> bytes:
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise LoadError("SM-LOAD-001", f"cannot open {str(path)[:200]!r}: {why}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise LoadError("SM-LOAD-001", f"{str(path)[:200]!r} is a folder", hint=_folder_hint(path))
        raise LoadError("SM-LOAD-001", f"{str(path)[:200]!r} is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > MAX_PROTO_BYTES:
            raise LoadError(
                "SM-LOAD-005",
                f"{str(path)[:200]!r} is larger than a protobuf can be (2 GiB)",
                hint="Save the model with its tensors as external data.",
            )
        return file.read()


def _parse(data: bytes) -> onnx.ModelProto:
    if not data:
        raise LoadError("SM-LOAD-002", "the model is empty")
    if len(data) > MAX_PROTO_BYTES:
        raise LoadError("SM-LOAD-005", "the model is larger than a protobuf can be (2 GiB)")
    try:
        return onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError, MemoryError) as error:
        raise LoadError(
            "SM-LOAD-002", f"the model cannot be parsed (damaged, or nested too deeply): {str(error)[:200]}"
        ) from None


def _convert(proto: onnx.ModelProto, folder: ExternalFolder | None) -> ir.Model:
    """ModelProto -> Model. onnx_ir meets untrusted input here, so whatever it raises is the model's fault."""
    try:
        check_text(proto)
        proto = without_sparse(proto)
        check_proto(proto, folder)
        return from_proto(proto)
    except SmeltError:
        raise
    except UnicodeDecodeError as error:
        raise LoadError("SM-LOAD-002", f"a text field of the model is not UTF-8: {error.reason}") from None
    except Exception as error:
        raise ModelError(
            "SM-MODEL-007",
            f"the model cannot be read: {_root_message(error)}",
            hint="Run onnx.checker on the model and export it again.",
        ) from error


def _root_message(error: BaseException) -> str:
    seen: set[int] = set()
    while error.__cause__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__
    return f"{type(error).__name__}: {str(error)[:300]}"


def _apart(model: ir.Model) -> ir.Model:
    """Tensors of our own over the caller's contents: one is renamed whenever a graph is written under other names."""
    for graph in model_graphs(model, functions=True):
        for value in graph.initializers.values():
            if value.const_value is not None and not _is_unmapped(value.const_value):
                value.const_value = _renamable(value.const_value)
    return model


def _renamable(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return copy.copy(tensor)
    if tensor.dtype == ir.DataType.STRING:
        return ir.serde.TensorProtoTensor(copy.deepcopy(tensor.raw))
    return ir.LazyTensor(lambda: tensor, tensor.dtype, ir.Shape(tensor.shape), name=tensor.name)


def _finish(model: ir.Model, folder: ExternalFolder | None) -> ir.Model:
    _name_opsets(model)
    _map_external(model, folder)
    _normalize_dims(model)
    _sort(model)
    verify_model(model)
    verify_signatures(model)
    verify_types(model)
    return model


def _name_opsets(model: ir.Model) -> None:
    """The standard domain is "" here, as onnx_ir calls it in nodes; ONNX Runtime writes its optimized files with
    "ai.onnx". It takes nodes of its own domain without an import too."""
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        version = imports.pop("ai.onnx", None)
        if version is not None:
            imports.setdefault("", version)
    if any(node.domain == _ORT_DOMAIN for graph in model_graphs(model) for node in graph):
        model.opset_imports.setdefault(_ORT_DOMAIN, 1)


def _sort(model: ir.Model) -> None:
    roots = [model.graph, *(function.graph for function in model.functions.values())]
    for root in roots:
        captured = scopes(root).captured
        for graph in nested_graphs(root):
            if not is_sorted(graph, captured):
                sort_graph(graph, captured)


def _map_external(model: ir.Model, folder: ExternalFolder | None) -> None:
    for graph in model_graphs(model, functions=True):
        for value in graph.initializers.values():
            if _is_unmapped(value.const_value):
                value.const_value = _mapped(value.const_value, folder)
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.TENSOR and _is_unmapped(attribute.value):
                    node.attributes[name] = ir.AttrTensor(name, _mapped(attribute.value, folder))
                elif attribute.type == ir.AttributeType.TENSORS:
                    tensors = [_mapped(t, folder) if _is_unmapped(t) else t for t in attribute.as_tensors()]
                    node.attributes[name] = ir.AttrTensors(name, tensors)


def _is_unmapped(tensor: object) -> bool:
    return isinstance(tensor, ir.ExternalTensor) and not isinstance(tensor, MappedTensor)


def _mapped(tensor: object, folder: ExternalFolder | None) -> MappedTensor:
    assert isinstance(tensor, ir.ExternalTensor)
    base_dir = os.fspath(cast("str | os.PathLike[str]", tensor.base_dir))
    home = ExternalFolder(Path(base_dir)) if folder is None and base_dir else folder
    if home is None:
        raise LoadError(
            "SM-LOAD-003",
            f"tensor {tensor.name[:80]!r} has external data, and the model's folder is not known",
            hint="Give the model's path, or base_dir.",
        )
    check_location(location_of(tensor), tensor.name)
    _, size = home.mapping(location_of(tensor), tensor.name)
    if (tensor.offset or 0) < 0 or (tensor.offset or 0) + tensor.nbytes > size:
        raise LoadError("SM-LOAD-004", f"tensor {tensor.name[:80]!r} ends after its file of {size} bytes")
    return home.tensor(tensor)


def _normalize_dims(model: ir.Model) -> None:
    """A declared dimension of -1 or without a name is unknown, as ONNX Runtime reads it; less is an error."""
    for graph in model_graphs(model, functions=True):
        for value in (*graph.inputs, *graph.outputs, *(output for node in graph for output in node.outputs)):
            shape = value.shape
            if shape is None or all(_is_normal(dim) for dim in shape):
                continue
            if any(isinstance(dim, int) and dim < -1 for dim in shape):
                raise ModelError("SM-MODEL-004", f"value {(value.name or '')[:80]!r} has a negative dimension")
            value.shape = ir.Shape([dim if _is_normal(dim) else None for dim in shape])


def _is_normal(dim: int | ir.SymbolicDim) -> bool:
    return dim >= 0 if isinstance(dim, int) else dim.value != ""
