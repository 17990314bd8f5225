"""`torch.ops.ort.<name>`: ONNX ops and expressions of them as PyTorch ops.

Input: a name, a lowering in ONNX, a torch schema (for one ONNX op it follows from the op's own). Output: a torch op
with kernels for `ort` and the CPU, a rule for fake tensors, and gradients where they are given. Invariant: the lowering
is a converter of the exporter, so the op also goes through `smelt.export` and `torch.compile(backend="smelt")`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import onnx
import onnx_ir as ir
import torch

from smelt.base.errors import ConfigError
from smelt.export import Call, Refused, register_converter
from smelt.export.assemble import assembled_model
from smelt.export.builder import Builder
from smelt.export.dtypes import to_onnx, to_torch
from smelt.export.expressions import Expression
from smelt.export.records import DEFAULT_OPSET
from smelt.export.sizes import Sizes

from .calls import NativeOp, on_cpu, on_ort
from .device import ensure_kernels
from .programs import NoProgramError, map_tensors

NAMESPACE: Final = "ort"
Lowering = str | Expression | Callable[..., Any]
_libraries: dict[str, Any] = {}
_ATTRIBUTES: Final = {"INT": "int", "FLOAT": "float", "STRING": "str", "INTS": "int[]", "FLOATS": "float[]"}


def custom_op(
    name: str, lowering: Lowering, schema: str | None = None, *, meta: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None, setup_context: Callable[..., None] | None = None,
) -> Any:  # fmt: skip
    """Define `torch.ops.ort.<name>`.

    `lowering`: the name of an ONNX op (`"Hardmax"`), an expression (`op.Gemm("a", "b", alpha=arg("alpha"))`), or a
    function of an exporter's call and of the schema's arguments. `schema`: "(Tensor a, Tensor b, float alpha=1.0) ->
    Tensor"; an argument written as `Tensor(a!) x` is changed in place, its new value is returned by the lowering behind
    the results. `meta`: results for fake tensors, where ONNX's own shape inference does not know them. `backward` and
    `setup_context`: gradients, as for torch.library.register_autograd.
    """
    if not name.isidentifier():
        raise ConfigError(
            "SM-DEVICE-003", f"{name!r} is no name for an op", hint="Use letters, digits and underscores."
        )
    if isinstance(lowering, str):
        schema = schema or onnx_schema(lowering)
        lowering = _single(lowering)
    if schema is None:
        raise ConfigError("SM-DEVICE-003", f"the op {name} needs a torch schema", hint='"(Tensor x) -> Tensor", say.')
    forget_op(name)
    written = re.findall(r"Tensor\(\w+!\)\s+(\w+)", schema)
    if written:
        return _mutating(name, lowering, schema, written, meta, backward, setup_context)
    return _functional(name, lowering, schema, meta, backward, setup_context)


def forget_op(name: str) -> None:
    """Take a definition back."""
    for part in (name, f"{name}_functional"):
        library = _libraries.pop(part, None)
        if library is not None:
            library._destroy()
            vars(getattr(torch.ops, NAMESPACE)).pop(part, None)


def _functional(
    name: str, lowering: Lowering, schema: str, meta: Callable[..., Any] | None, backward: Callable[..., Any] | None,
    setup_context: Callable[..., None] | None,
) -> Any:  # fmt: skip
    ensure_kernels()
    library = _libraries[name] = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(name + schema)
    op = getattr(getattr(torch.ops, NAMESPACE), name).default
    register_converter(f"{NAMESPACE}::{name}")(cast("Callable[..., Any]", lowering))
    native = NativeOp(op, own=True)

    def on_host(*args: Any, **kwargs: Any) -> Any:
        return map_tensors(on_cpu, on_device(*map_tensors(on_ort, args), **map_tensors(on_ort, kwargs)))

    def on_device(*args: Any, **kwargs: Any) -> Any:
        try:
            results, single = native.compute(args, kwargs)
        except NoProgramError as reason:
            raise RuntimeError(f"torch.ops.{NAMESPACE}.{name}: {reason.__cause__ or reason}") from reason
        return results[0] if single else tuple(results)

    library.impl(name, on_device, "PrivateUse1")
    library.impl(name, on_host, "CPU")
    qualified = f"{NAMESPACE}::{name}"
    torch.library.register_fake(qualified, meta or _inferring(op, lowering), lib=library)
    if backward is not None:
        torch.library.register_autograd(qualified, backward, setup_context=setup_context, lib=library)
    return op


def _mutating(
    name: str, lowering: Lowering, schema: str, written: Sequence[str], meta: Callable[..., Any] | None,
    backward: Callable[..., Any] | None, setup_context: Callable[..., None] | None,
) -> Any:  # fmt: skip
    """A functional op that also returns the new values, and one that writes them back."""
    arguments, _, returns = schema.partition("->")
    count = returns.count("Tensor")
    plain = re.sub(r"Tensor\(\w+!\)", "Tensor", arguments)
    inner = _functional(
        f"{name}_functional",
        lowering,
        f"{plain}-> ({', '.join(['Tensor'] * (count + len(written)))})",
        meta,
        None,
        None,
    )
    library = _libraries[name] = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(name + schema)
    op = getattr(getattr(torch.ops, NAMESPACE), name).default
    places = {argument.name: place for place, argument in enumerate(op._schema.arguments)}

    def kernel(*args: Any, **kwargs: Any) -> Any:
        results = inner(*args, **kwargs)
        for target, value in zip(written, results[count:], strict=True):
            given = kwargs[target] if target in kwargs else args[places[target]]
            given.copy_(value)
        return results[0] if count == 1 else tuple(results[:count]) if count else None

    library.impl(name, kernel, "PrivateUse1")
    library.impl(name, kernel, "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{name}", kernel, lib=library)
    if backward is not None:
        torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=library)
    return op


# a single ONNX op


def _single(op_type: str) -> Callable[[Call], Any]:
    def convert(call: Call) -> Any:
        declared = onnx.defs.get_schema(op_type, DEFAULT_OPSET)
        operands: list[Any] = []
        for formal in declared.inputs:
            given = call.arguments.get(formal.name)
            operands += given if isinstance(given, (list, tuple)) else [given]  # pyright: ignore[reportUnknownArgumentType]
        while operands and operands[-1] is None:
            operands.pop()
        attributes = {n: call.arguments[n] for n in declared.attributes if call.arguments.get(n) is not None}
        return call.op(op_type, *operands, **attributes)

    return convert


def onnx_schema(op_type: str) -> str:
    """The torch schema of an ONNX op: inputs, then attributes as keywords."""
    try:
        declared = onnx.defs.get_schema(op_type, DEFAULT_OPSET)
    except onnx.defs.SchemaError as error:
        raise ConfigError(
            "SM-DEVICE-003", f"ONNX has no op {op_type!r}", hint="Names are spelled as in its list."
        ) from error
    kinds = {"Single": "Tensor", "Optional": "Tensor?", "Variadic": "Tensor[]"}
    parts = [_input_text(kinds[str(f.option).rpartition(".")[2]], f.name) for f in declared.inputs]
    keywords = [_attribute_text(op_type, name, a) for name, a in declared.attributes.items()]
    returns = ", ".join(["Tensor"] * max(declared.min_output, 1))
    several = declared.min_output > 1
    arguments = ", ".join([*parts, *(["*", *keywords] if keywords else [])])
    return f"({arguments}) -> ({returns})" if several else f"({arguments}) -> {returns}"


def _input_text(kind: str, name: str) -> str:
    return f"{kind} {name}=None" if kind.endswith("?") else f"{kind} {name}"


def _attribute_text(op_type: str, name: str, attribute: Any) -> str:
    kind = _ATTRIBUTES.get(attribute.type.name)
    if kind is None:
        raise ConfigError(
            "SM-DEVICE-003", f"the attribute {name} of {op_type} has a type that torch has none for",
            hint="Give the lowering as a function.",
        )  # fmt: skip
    if attribute.required:
        return f"{kind} {name}"
    default = onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
    if isinstance(default, bytes):
        return f'{kind} {name}="{default.decode()}"'
    if isinstance(default, (int, float)):
        return f"{kind} {name}={default}"
    return f"{kind}? {name}=None"


# results of fake tensors


def _inferring(op: Any, lowering: Lowering) -> Callable[..., Any]:
    """ONNX's shape inference as torch's rule."""
    formals = op._schema.arguments
    single = len(op._schema.returns) == 1

    def fake(*args: Any, **kwargs: Any) -> Any:
        named = {f.name: f.default_value for f in formals if f.has_default_value()}
        named.update({f.name: value for f, value in zip(formals, args, strict=False)}, **kwargs)
        like = next(t for t in _flat(named) if isinstance(t, torch.Tensor))
        made = [like.new_empty(shape, dtype=dtype) for shape, dtype in _inferred(lowering, named)]
        return made[0] if single else tuple(made)

    return fake


def _flat(arguments: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    map_tensors(found.append, list(arguments.values()))
    return found


def _inferred(lowering: Lowering, arguments: Mapping[str, Any]) -> list[tuple[list[Any], torch.dtype]]:
    builder = Builder(DEFAULT_OPSET)
    sizes, inputs, names = Sizes(builder), list[ir.Value](), dict[str, Any]()

    def stand_in(tensor: torch.Tensor) -> ir.Value:
        sizes_of: list[Any] = list(tensor.shape)
        dims = [n if isinstance(n, int) else _named(n, names) for n in sizes_of]
        value = ir.Value(name=f"i{len(inputs)}", type=ir.TensorType(to_onnx(tensor.dtype)), shape=ir.Shape(dims))
        inputs.append(value)
        return value

    call = Call("custom", map_tensors(stand_in, dict(arguments)), (), builder, sizes)
    function = cast("Callable[..., Any]", lowering)
    from smelt.export.registry import Converter

    try:
        results = Converter("custom", "user", function)(call, {})
    except Refused as refused:
        raise RuntimeError(f"the shape of the result is not known: give `meta`. {refused}") from refused
    outputs: list[Any] = [*results] if isinstance(results, (list, tuple)) else [results]
    model, _ = assembled_model(builder, inputs, outputs)
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True)
    return [_described(info, names) for info in proto.graph.output]


def _named(size: Any, names: dict[str, Any]) -> str:
    name = str(size).replace(" ", "")
    names[name] = size
    return name


def _described(info: onnx.ValueInfoProto, names: Mapping[str, Any]) -> tuple[list[Any], torch.dtype]:
    tensor = info.type.tensor_type
    dims: list[Any] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            dims.append(dim.dim_value)
        elif dim.dim_param in names:
            dims.append(names[dim.dim_param])
        else:
            dims.append(torch.library.get_ctx().new_dynamic_size())
    return dims, to_torch(ir.DataType(tensor.elem_type))
