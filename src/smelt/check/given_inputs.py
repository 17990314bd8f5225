"""Inputs and shapes that the user gives, checked against what the model declares.

Input: a path (.npz, .npy, or a folder of such or of ONNX test data), arrays by name, or several calls of arrays by
name; shapes by name. Output: calls, each a dictionary of arrays. Invariant: files are never unpickled; a wrong name,
rank, size or type is an InputError that lists what the model takes; inputs that are not given are generated later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import prod
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx_ir as ir

from smelt.base.errors import InputError

Array = np.ndarray[Any, Any]
Given = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]

_MAX_CALLS: Final = 16
_MOST_ELEMENTS: Final = 1 << 48
_HINT: Final = "Write arrays by numpy.savez(file, name=array, ...), one .npz file for each call."


def given_calls(model: ir.Model, given: Given) -> list[dict[str, Array]]:
    """The calls that `given` holds, at most 16 of them."""
    calls = _read(model, Path(given)) if isinstance(given, (str, Path)) else _mappings(given)
    return [_checked(model, call) for call in calls[:_MAX_CALLS]]


def check_shapes(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> None:
    """Shapes that the model can have."""
    by_name = _inputs(model)
    for name, shape in shapes.items():
        value = _named(model, by_name, name)
        _check_shape(model, value, tuple(shape))
        if prod(shape) > _MOST_ELEMENTS:
            raise InputError("SM-INPUT-003", f"input {name!r} of shape {list(shape)} fits into no memory")


def wanted_text(model: ir.Model) -> str:
    """What the model takes, in one line."""
    return "; ".join(_declared(value) for value in _inputs(model).values()) or "no inputs"


def _inputs(model: ir.Model) -> dict[str, ir.Value]:
    return {v.name: v for v in model.graph.inputs if v.name}


def _declared(value: ir.Value) -> str:
    dims = (
        "?" if value.shape is None else ",".join(str(d if isinstance(d, int) else d.value or "?") for d in value.shape)
    )
    return f"{value.name}: {'?' if value.dtype is None else value.dtype.name.lower()}[{dims}]"


def _mappings(given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, Array]]:
    calls = [given] if isinstance(given, Mapping) else list(given)
    if not all(isinstance(call, Mapping) for call in cast("list[object]", calls)):
        raise InputError("SM-INPUT-003", "inputs are a path, arrays by name, or a list of arrays by name")
    return [{str(name): np.asarray(array) for name, array in call.items()} for call in calls]


# files


def _read(model: ir.Model, path: Path) -> list[dict[str, Array]]:
    if path.is_dir():
        return _folder(model, path)
    if path.suffix == ".npz":
        return [_archive(model, path)]
    array = _load(path)
    names = [v.name for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]
    if path.suffix == ".npy" and len(names) == 1:
        return [{names[0]: array}]
    message = f"{path} holds one array, and the model takes {wanted_text(model)}"
    raise InputError("SM-INPUT-003", message, hint=_HINT)


def _folder(model: ir.Model, folder: Path) -> list[dict[str, Array]]:
    """Each .npz is a call, each folder of input_0.pb ... is one, and the .npy files named after inputs are one."""
    calls = [_archive(model, path) for path in sorted(folder.glob("*.npz"))]
    by_input = {path.stem: _load(path) for path in sorted(folder.glob("*.npy"))}
    calls += [by_input] if by_input else []
    sets = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    calls += [_test_data(model, place) for place in sets if (place / "input_0.pb").is_file()]
    if not calls:
        raise InputError("SM-INPUT-003", f"{folder} holds no .npz, .npy or input_0.pb", hint=_HINT)
    return calls


def _archive(model: ir.Model, path: Path) -> dict[str, Array]:
    loaded = _load(path)
    named: dict[str, Array] = {str(name): loaded[name] for name in loaded}
    positional = [f"arr_{place}" for place in range(len(named))]
    names = [v.name for v in model.graph.inputs if v.name and v.name not in model.graph.initializers]
    if list(named) == positional and len(names) >= len(named) and not set(positional) & set(names):
        return dict(zip(names, named.values(), strict=False))
    return named


def _load(path: Path) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded.items()) if hasattr(loaded, "items") else loaded
    except (OSError, ValueError, EOFError) as error:
        message = f"{path} cannot be read as {path.suffix or 'a numpy file'}: {error}"
        raise InputError("SM-INPUT-003", message, hint=_HINT) from None


def _test_data(model: ir.Model, folder: Path) -> dict[str, Array]:
    """input_0.pb, input_1.pb ... as the ONNX test suites have them, in the order of the model's inputs."""
    import onnx

    names = [v.name for v in model.graph.inputs if v.name]
    call: dict[str, Array] = {}
    for place, name in enumerate(names):
        path = folder / f"input_{place}.pb"
        if not path.is_file():
            break
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(path.read_bytes())
            call[name] = onnx.numpy_helper.to_array(tensor)
        except Exception as error:  # protobuf and numpy raise many kinds
            raise InputError("SM-INPUT-003", f"{path} is no ONNX tensor: {error}") from None
    return call


# checks


def _named(model: ir.Model, by_name: Mapping[str, ir.Value], name: str) -> ir.Value:
    value = by_name.get(name)
    if value is None:
        close = get_close_matches(name, list(by_name), n=1)
        hint = f"Is {name!r} meant to be {close[0]!r}?" if close else None
        message = f"the model has no input {name!r}; it takes {wanted_text(model)}"
        raise InputError("SM-INPUT-001", message, hint=hint)
    return value


def _checked(model: ir.Model, call: Mapping[str, Array]) -> dict[str, Array]:
    by_name = _inputs(model)
    made: dict[str, Array] = {}
    for name, array in call.items():
        value = _named(model, by_name, name)
        _check_shape(model, value, array.shape)
        made[name] = _typed(model, value, array)
    return made


def _check_shape(model: ir.Model, value: ir.Value, shape: tuple[int, ...]) -> None:
    declared = value.shape
    if declared is None:
        return
    fits = len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim < 0 or dim == size for dim, size in zip(declared, shape, strict=True)
    )
    if not fits:
        message = f"input {value.name!r} was given shape {list(shape)}; the model takes {wanted_text(model)}"
        raise InputError("SM-INPUT-003", message)


def _typed(model: ir.Model, value: ir.Value, array: Array) -> Array:
    dtype = value.dtype
    if dtype is None or (dtype == ir.DataType.STRING and array.dtype.kind in "UOS"):
        return array
    if dtype == ir.DataType.BFLOAT16 and array.dtype == np.float32:  # numpy files have no bfloat16
        return array.astype(dtype.numpy())
    if dtype == ir.DataType.STRING or array.dtype != dtype.numpy():
        message = f"input {value.name!r} was given as {array.dtype}; the model takes {wanted_text(model)}"
        raise InputError("SM-INPUT-003", message, hint=_conversion(dtype))
    return array


def _conversion(dtype: ir.DataType) -> str:
    """In numpy's words: what ONNX calls float is its float32."""
    return "Give text." if dtype == ir.DataType.STRING else f"Convert it by array.astype({dtype.numpy().name!r})."
