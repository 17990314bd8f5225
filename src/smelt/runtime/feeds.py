"""Feeds of a call -> what ONNX Runtime takes, or an error that says what to change.

Input: a mapping by name or a sequence in the model's order. Output: a dictionary of contiguous arrays, one per input.
Invariant: nothing is converted between dtypes; an array is copied only when its memory layout demands it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from smelt.base.dtype import DTYPES
from smelt.base.errors import InputError, SmeltError
from smelt.runtime.session import Session

Array = npt.NDArray[Any]

# What numpy itself has; others, such as bfloat16, are given as OrtValues.
_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    f"tensor({d.onnx_name})": d.numpy for d in DTYPES if d.numpy is not None and d.numpy.isbuiltin == 1
}


@dataclass(frozen=True)
class InputSpec:
    """One input as the model declares it. `dtype` is None where numpy has none; `shape` is None where the session
    does not tell a scalar from an unknown rank."""

    name: str
    type: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{_shape_text(self.shape)}"


OutputSpec = InputSpec


def input_specs(session: Session) -> tuple[InputSpec, ...]:
    return tuple(_spec(argument) for argument in session.get_inputs())


def declared_inputs(path: Path) -> tuple[InputSpec, ...]:
    """Inputs as an ONNX file declares them, without a session."""
    import onnx

    graph = onnx.load_model(str(path), load_external_data=False).graph
    held = {tensor.name for tensor in graph.initializer}
    return tuple(_declared(value) for value in graph.input if value.name not in held)


def _declared(value: Any) -> InputSpec:
    import onnx

    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return InputSpec(value.name, str(value.type.WhichOneof("value")), None, None)
    name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
    dims = [(d.dim_param or None) if d.WhichOneof("value") != "dim_value" else d.dim_value for d in kind.shape.dim]
    return _spec(SimpleNamespace(name=value.name, type=f"tensor({name})", shape=dims))


def output_specs(session: Session) -> tuple[OutputSpec, ...]:
    return tuple(_spec(argument) for argument in session.get_outputs())


def _spec(argument: Any) -> InputSpec:
    shape = tuple(cast("Iterable[int | str | None]", argument.shape or ()))
    return InputSpec(str(argument.name), str(argument.type), _DTYPES.get(str(argument.type)), shape or None)


class FeedChecker:
    """Checks the feeds of every call of one session."""

    def __init__(self, session: Session) -> None:
        self.inputs = input_specs(session)
        overridable = (_spec(argument) for argument in session.get_overridable_initializers())
        self._optional = {spec.name: spec for spec in overridable}
        self._by_name = {spec.name: spec for spec in self.inputs}

    def __call__(self, feeds: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        named = feeds if isinstance(feeds, Mapping) else self._by_position(feeds)
        if named.keys() != self._by_name.keys():
            self._check_names(named)
        return {name: _accepted(self._spec_of(name), value) for name, value in named.items()}

    def _spec_of(self, name: str) -> InputSpec:
        return self._by_name.get(name) or self._optional[name]

    def _by_position(self, values: Sequence[Any]) -> dict[str, Any]:
        if isinstance(values, (np.ndarray, str, bytes)):
            raise InputError("SM-INPUT-001", f"give a list or a mapping of inputs, not one {type(values).__name__}")
        if len(values) != len(self.inputs):
            raise InputError("SM-INPUT-001", f"{len(values)} inputs given, the model takes {self._declared()}")
        return {spec.name: value for spec, value in zip(self.inputs, values, strict=True)}

    def _check_names(self, named: Mapping[str, Any]) -> None:
        missing = [name for name in self._by_name if name not in named]
        extra = [name for name in named if name not in self._by_name and name not in self._optional]
        if not missing and not extra:
            return
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"unknown: {', '.join(map(str, extra))}"] if extra else []
        raise InputError(
            "SM-INPUT-001", f"{'; '.join(parts)}. The model takes {self._declared()}", hint=_meant(extra, missing)
        )

    def _declared(self) -> str:
        return f"{len(self.inputs)}: " + "; ".join(map(str, self.inputs))


def _meant(extra: Sequence[object], missing: Sequence[str]) -> str | None:
    for name in extra:
        close = get_close_matches(str(name), missing, n=1)
        if close:
            return f"Is {name!r} meant to be {close[0]!r}?"
    return None


def _is_ort_value(value: Any) -> bool:
    from onnxruntime import OrtValue

    return isinstance(value, OrtValue)


def _accepted(spec: InputSpec, value: Any) -> Any:
    if spec.dtype is None:
        return value
    if type(value) is np.ndarray:
        array = value
    elif _is_ort_value(value):
        return value
    else:
        array = _as_array(spec, value)
    if array.dtype != spec.dtype:
        raise _wrong_dtype(spec, array)
    if spec.shape is not None and not _shape_fits(spec.shape, array.shape):
        raise _wrong_shape(spec, array)
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def _as_array(spec: InputSpec, value: Any) -> Array:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        kind = type(value).__name__
        raise InputError("SM-INPUT-002", f"input {spec.name!r}: a {kind} is no array: {error}") from error


def _shape_fits(expected: tuple[int | str | None, ...], found: tuple[int, ...]) -> bool:
    if len(expected) != len(found):
        return False
    return all(not isinstance(want, int) or want == have for want, have in zip(expected, found, strict=True))


def disagreement(
    declared: Mapping[str, Sequence[int | str | None] | str | None], shapes: Mapping[str, Sequence[int]]
) -> str:
    """Which inputs differ in a size that the model declares under one name; empty where none do."""
    met: dict[str, tuple[int, str]] = {}
    found: list[str] = []
    for name, dims in declared.items():
        shape = shapes.get(name)
        if shape is None or dims is None or isinstance(dims, str) or len(dims) != len(shape):
            continue
        for dim, size in zip(dims, shape, strict=True):
            first, other = met.setdefault(dim, (size, name)) if isinstance(dim, str) and dim else (size, "")
            if first != size:
                found.append(
                    f"{dim!r} is {first} in input {other!r} {_shape_text(shapes[other])} "
                    f"and {size} in input {name!r} {_shape_text(shape)}"
                )
    return "; ".join(dict.fromkeys(found))


def run_once(session: Session, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
    """One call of a session; where it fails, the error tells of the inputs."""
    try:
        return list(session.run(outputs, feeds))
    except Exception as error:  # onnxruntime raises many kinds
        declared = {str(argument.name): list(argument.shape or ()) for argument in session.get_inputs()}
        told = _refused_call(error, declared, feeds)
        if told is error:
            raise
        raise told from error


def _refused_call(
    error: Exception, declared: Mapping[str, Sequence[int | str | None] | None], feeds: Mapping[str, Any]
) -> Exception:
    """What to raise for a call that failed: an error that names the inputs that do not fit each other, or the same
    error with a note of what was given."""
    if isinstance(error, SmeltError):
        return error
    arrays = {name: cast("Array", value) for name, value in feeds.items() if isinstance(value, np.ndarray)}
    unequal = disagreement(declared, {name: array.shape for name, array in arrays.items()})
    if unequal:
        return InputError("SM-INPUT-006", f"the inputs do not fit each other: {unequal}")
    given = (f"{name}: {array.dtype}{_shape_text(array.shape)}" for name, array in arrays.items())
    error.add_note(f"inputs given: {'; '.join(given)}")
    return error


def _wrong_dtype(spec: InputSpec, array: Array) -> InputError:
    wanted = str(spec.dtype)
    return InputError(
        "SM-INPUT-002",
        f"input {spec.name!r} is {array.dtype}, the model takes {wanted}",
        hint=f"Convert it: array.astype({wanted!r}).",
    )


def _wrong_shape(spec: InputSpec, array: Array) -> InputError:
    expected = spec.shape or ()
    message = f"input {spec.name!r} has shape {_shape_text(array.shape)}, the model takes {_shape_text(expected)}"
    if len(expected) != array.ndim:
        return InputError("SM-INPUT-003", f"{message}: rank {array.ndim}, expected {len(expected)}")
    axes = [
        f"axis {i} is {have}, expected {want}"
        for i, (want, have) in enumerate(zip(expected, array.shape, strict=True))
        if isinstance(want, int) and want != have
    ]
    return InputError("SM-INPUT-003", f"{message}: {', '.join(axes)}")


def _shape_text(shape: Iterable[int | str | None] | None) -> str:
    if shape is None:
        return "[...]"
    return "[" + ",".join("?" if dim is None else str(dim) for dim in shape) + "]"
