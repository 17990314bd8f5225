"""Building an ONNX graph node by node.

Input: op types with operands. Output: values that carry dtype and, where cheap, shape. Invariant: constants are stored
once per content; a value made inside a subgraph is never handed out outside it; nodes are in topological order.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from smelt.export.records import DEFAULT_OPSET, Refused
from smelt.export.shapes import SAME_FOR_ALL, inferred_shape
from smelt.ir.ort_kernels import formal_of, result_formal, substitutes

Operand = Any
"""An `ir.Value`, None, a number, a list of numbers or a numpy array."""


@lru_cache(maxsize=1024)
def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema:
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError as error:
        raise Refused(f"opset {opset} has no {op_type}") from error


@dataclass
class Scope:
    """The nodes of one (sub)graph and what was remembered while building it."""

    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    memo: dict[Any, ir.Value] = field(default_factory=dict[Any, ir.Value])


class Builder:
    def __init__(self, opset: int = DEFAULT_OPSET, *, runtime_types: bool = True) -> None:
        self.opset = opset
        self.runtime_types = runtime_types
        self.scopes = [Scope()]
        self.initializers: dict[str, ir.Value] = {}
        self.functions: dict[Any, ir.Function] = {}
        self.domains: set[str] = {""}
        self.prefix = "v"
        self.metadata: dict[str, str] = {}
        self._names: dict[str, int] = {}
        self._constants: dict[Any, ir.Value] = {}

    # Names

    def unique(self, name: str) -> str:
        """`name` itself the first time, then with a number."""
        count = self._names.get(name)
        if count is None:
            self._names[name] = 0
            return name
        while True:
            count += 1
            candidate = f"{name}_{count}"
            if candidate not in self._names:
                self._names[name] = count
                self._names[candidate] = 0
                return candidate

    def taken(self, name: str) -> bool:
        return name in self._names

    # Constants

    def constant(self, data: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A small constant: a number, a list or an array. Stored once per content."""
        array = np.asarray(data)
        if dtype is None:
            dtype = ir.DataType.from_numpy(array.dtype)
        if array.dtype != dtype.numpy():
            array = array.astype(dtype.numpy())
        key = (dtype, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.initializer(_constant_name(array), ir.Tensor(array, dtype=dtype))
        return found

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        name = self.unique(name)
        tensor.name = name
        value = ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        self.initializers[name] = value
        return value

    # Nodes

    def op(
        self, op_type: str, *operands: Operand, domain: str = "", outputs: int = 1, dtype: ir.DataType | None = None,
        shape: Sequence[Any] | None = None, **attributes: Any,
    ) -> Any:  # fmt: skip
        """Append a node; its value, or a tuple of them when `outputs` is more than one.

        Numbers and lists among the operands become constants of the type that the op's schema asks for. Where ONNX
        Runtime has no kernel of the operands' type, the node computes in a wider one between casts.
        """
        return self.node(op_type, operands, attributes, domain=domain, outputs=outputs, dtype=dtype, shape=shape)

    def node(
        self, op_type: str, operands: Sequence[Operand], attributes: Mapping[str, Any], *, domain: str = "",
        outputs: int = 1, dtype: ir.DataType | None = None, shape: Sequence[Any] | None = None,
    ) -> Any:  # fmt: skip
        """As `op`, for attributes of any name (`dtype`, `shape`)."""
        kept = [*operands]
        attributes = {name: a.value if isinstance(a, ir.Attr) else a for name, a in attributes.items()}
        while kept and kept[-1] is None:
            kept.pop()
        if domain:
            self.domains.add(domain)
            return self._emit(
                domain, op_type, [self._plain(x) for x in kept], outputs, [dtype] * outputs, shape, attributes
            )
        schema = _schema(op_type, self.opset)
        for name in attributes:
            if name not in schema.attributes:
                raise Refused(f"{op_type} of opset {self.opset} has no attribute {name}")
        bound = self._bind(schema, kept)
        inputs = [self._as_value(schema, bound, index, operand) for index, operand in enumerate(kept)]
        wider = _substitutes(schema, bound) if self.runtime_types else {}
        if wider:
            inputs = self._widened(schema, inputs, wider)
        types = _output_types(schema, {**bound, **wider}, attributes, outputs)
        if dtype is not None and not wider:
            types[0] = dtype
        result = self._emit("", op_type, inputs, outputs, types, shape, attributes)
        return self._narrowed(schema, result, bound, wider) if wider else result

    def raw(
        self, op_type: str, inputs: list[ir.Value], types: Sequence[ir.DataType | None], **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """A node as it is said, with results of the given types (ops with subgraphs)."""
        made = self._emit("", op_type, [*inputs], len(types), types, None, attributes)
        return made if len(types) > 1 else (made,)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`value` in another type; a constant is converted on the spot."""
        if value.dtype == dtype:
            return value
        constant = value.const_value
        if constant is not None and constant.size <= 1024 and value.name in self.initializers:
            return self.constant(constant.numpy(), dtype)
        return self.remember(("cast", value, dtype), lambda: self.op("Cast", value, to=dtype, dtype=dtype))

    def remember(self, key: Any, make: Any) -> ir.Value:
        """The value made for `key` in this scope or one around it; else a new one."""
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        value = self.scopes[-1].memo[key] = make()
        return value

    @contextmanager
    def subgraph(self) -> Generator[Scope, None, None]:
        """Nodes appended meanwhile go to a scope of their own."""
        scope = Scope()
        self.scopes.append(scope)
        try:
            yield scope
        finally:
            self.scopes.pop()

    def append(self, node: ir.Node) -> None:
        node.metadata_props.update(self.metadata)
        self.scopes[-1].nodes.append(node)

    # Operands

    def _plain(self, operand: Operand) -> ir.Value | None:
        return operand if operand is None or isinstance(operand, ir.Value) else self.constant(operand)

    def _bind(self, schema: onnx.defs.OpSchema, operands: Sequence[Operand]) -> dict[str, ir.DataType]:
        """The types of the op's type variables, as far as tensor operands tell."""
        bound: dict[str, ir.DataType] = {}
        for index, operand in enumerate(operands):
            if isinstance(operand, ir.Value) and operand.dtype is not None:
                known = bound.setdefault(formal_of(schema, index), operand.dtype)
                if known != operand.dtype:
                    raise Refused(f"{schema.name} of {known.name} and {operand.dtype.name}")
        return {name: dtype for name, dtype in bound.items() if not name.startswith("tensor(")}

    def _as_value(
        self, schema: onnx.defs.OpSchema, bound: dict[str, ir.DataType], index: int, operand: Operand
    ) -> ir.Value | None:
        if operand is None or isinstance(operand, ir.Value):
            return operand
        formal = formal_of(schema, index)
        dtype = bound.get(formal)
        if dtype is None:
            dtype = ir.DataType.INT64 if "int64" in formal or _is_integral(operand) else None
            if dtype is not None and not formal.startswith("tensor("):
                bound[formal] = dtype
        return self.constant(operand, dtype)

    def _widened(
        self, schema: onnx.defs.OpSchema, inputs: list[ir.Value | None], wider: dict[str, ir.DataType]
    ) -> list[ir.Value | None]:
        return [
            self.cast(x, wider[formal_of(schema, i)]) if x is not None and formal_of(schema, i) in wider else x
            for i, x in enumerate(inputs)
        ]

    def _narrowed(self, schema: onnx.defs.OpSchema, result: Any, bound: dict[str, ir.DataType], wider: Any) -> Any:
        values: Any = result if isinstance(result, tuple) else (result,)  # pyright: ignore[reportUnknownVariableType]
        back: list[ir.Value] = []
        for index, value in enumerate(values):
            formal = result_formal(schema, index)
            back.append(self.cast(value, bound[formal]) if formal in wider else value)
        return tuple(back) if isinstance(result, tuple) else back[0]

    def _emit(
        self, domain: str, op_type: str, inputs: list[ir.Value | None], outputs: int,
        types: Sequence[ir.DataType | None], shape: Sequence[Any] | None, attributes: dict[str, Any],
    ) -> Any:  # fmt: skip
        kept = [_attribute(name, value) for name, value in attributes.items() if value is not None]
        dims = ir.Shape(shape) if shape is not None else inferred_shape(op_type, inputs, attributes)
        values = [
            ir.Value(
                name=self.unique(f"{self.prefix}.{op_type}"), shape=dims if i == 0 or op_type in SAME_FOR_ALL else None,
                type=ir.TensorType(kind) if kind is not None else None,
            )
            for i, kind in enumerate(types)
        ]  # fmt: skip
        self.append(ir.Node(domain, op_type, inputs, kept, outputs=values, name=values[0].name))
        return values[0] if outputs == 1 else tuple(values)


def _substitutes(schema: onnx.defs.OpSchema, bound: dict[str, ir.DataType]) -> dict[str, ir.DataType]:
    wider = substitutes(schema, bound)
    if wider is None:
        types = ", ".join(dtype.name.lower() for dtype in bound.values())
        raise Refused(f"ONNX Runtime has no CPU kernel of {schema.name} for {types}")
    return wider


def _output_types(
    schema: onnx.defs.OpSchema, bound: dict[str, ir.DataType], attributes: dict[str, Any], outputs: int
) -> list[ir.DataType | None]:
    given = attributes.get("to", attributes.get("dtype"))
    value = attributes.get("value")
    types: list[ir.DataType | None] = []
    for index in range(outputs):
        formal = result_formal(schema, index)
        if formal in bound:
            types.append(bound[formal])
        elif (only := _only_type(schema, formal)) is not None:
            types.append(only)
        elif given is not None:
            types.append(ir.DataType(given))
        else:
            types.append(value.dtype if isinstance(value, ir.TensorProtocol) else None)
    return types


def _only_type(schema: onnx.defs.OpSchema, formal: str) -> ir.DataType | None:
    """The type of a result that has no choice: `tensor(bool)`, or a variable with one allowed type."""
    if not formal.startswith("tensor("):
        allowed = [c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == formal]
        formal = allowed[0][0] if allowed and len(allowed[0]) == 1 else ""
    return ir.DataType[formal[7:-1].upper()] if formal.startswith("tensor(") else None


def _attribute(name: str, value: Any) -> ir.Attr:
    if isinstance(value, (bool, ir.DataType)):
        value = int(value)
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, ir.TensorProtocol):
        return ir.AttrTensor(name, value)
    items: list[Any] = list(value)
    if items and isinstance(items[0], float):
        return ir.AttrFloat32s(name, items)
    if items and isinstance(items[0], str):
        return ir.AttrStrings(name, items)
    return ir.AttrInt64s(name, [int(item) for item in items])


def _is_integral(operand: Any) -> bool:
    array = np.asarray(operand)
    return array.size == 0 or array.dtype.kind in "iu"


def _constant_name(array: np.ndarray[Any, Any]) -> str:
    text = str(array.item()) if array.ndim == 0 else "x".join(map(str, array.shape)) + "_const"
    return f"const_{text}".replace(" ", "").replace("[", "").replace("]", "")
