"""Lowering FX nodes one by one.

Input: FX nodes and an environment of what earlier nodes gave. Output: the environment filled: values, tuples of values,
symbolic numbers. Invariant: the value of a node has the dtype and shape of its `meta["val"]`.
"""

# What torch and sympy hand over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import operator
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import sympy
import torch
import torch.fx
import torch.utils._pytree as pytree
from onnx_ir import tensor_adapters
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.node import map_arg

from smelt.base.errors import ExportError
from smelt.export import _torchlib, decompose
from smelt.export.builder import Builder, Scope
from smelt.export.call import Call, Meta
from smelt.export.control_flow import lower_higher_order
from smelt.export.dtypes import to_onnx
from smelt.export.records import ExportOptions, ExportReport, Origin, Refused
from smelt.export.registry import find
from smelt.export.sizes import Sizes, dim_of, dim_text
from smelt.export.source_lines import user_line

Env = dict[torch.fx.Node, Any]
_SYMBOLS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
_CHECKS: Final = frozenset((
    "aten::_assert_scalar", "aten::_assert_async", "aten::_assert_async.msg", "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size", "aten::_assert_tensor_metadata", "aten::_print",
))  # fmt: skip
# What these give besides their first result, gradients need; the conversions leave it out.
_FIRST_RESULT_ONLY: Final = frozenset((
    "aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_flash_attention",
))  # fmt: skip
# What these read is said by places in memory.
_BY_MEMORY: Final = frozenset(("aten::as_strided", "aten::as_strided_copy", "prims::as_strided"))
_PAIR: Final = {torch.complex64: ir.DataType.FLOAT, torch.complex128: ir.DataType.DOUBLE}


def meta_of(tensor: torch.Tensor) -> Meta:
    """What a fake tensor says; a complex tensor is a real one with a last axis of 2."""
    dims = tuple(dim_of(size) for size in tensor.shape)
    if tensor.dtype in _PAIR:
        return Meta(_PAIR[tensor.dtype], (*dims, 2), complex=True)
    return Meta(to_onnx(tensor.dtype), dims)


def memory_order(tensor: Any) -> list[int] | None:
    """The axes from the outermost on, of a tensor that fills its memory from the start; else None."""
    if not isinstance(tensor, torch.Tensor) or tensor.storage_offset() != 0:
        return None
    axes = [*range(tensor.dim())]
    if tensor.is_contiguous():
        return axes
    sizes, strides = tensor.shape, tensor.stride()
    if any(isinstance(number, torch.SymInt) for number in (*sizes, *strides)):
        return None
    order = sorted(axes, key=lambda axis: -strides[axis])
    filled = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != filled:
            return None
        filled *= sizes[axis]
    return order


def metas_of(value: Any) -> tuple[Any, ...]:
    """The meta data of results, flat: `Meta` for tensors, anything else as it is."""
    items: Any = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(meta_of(item) if isinstance(item, torch.Tensor) else item for item in items)


def target_name(target: Any) -> str:
    if isinstance(target, OpOverload):
        return target.name()
    if isinstance(target, HigherOrderOperator):
        return str(target.name())
    return getattr(target, "__name__", str(target))


class Lowering:
    def __init__(self, builder: Builder, sizes: Sizes, options: ExportOptions, report: ExportReport) -> None:
        self.builder = builder
        self.sizes = sizes
        self.options = options
        self.report = report
        self._constants: dict[Any, ir.Value] = {}

    def graph(self, gm: torch.fx.GraphModule, env: Env) -> list[tuple[torch.fx.Node, str]]:
        """Lower all calls of a graph; the nodes that failed, with reasons."""
        failures: list[tuple[torch.fx.Node, str]] = []
        lost: set[torch.fx.Node] = set()
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if not lost.isdisjoint(node.all_input_nodes):
                lost.add(node)
                continue
            try:
                self.node(node, env, gm)
            except Refused as refused:
                failures.append((node, str(refused)))
                lost.add(node)
        return failures

    def node(self, node: torch.fx.Node, env: Env, gm: torch.fx.GraphModule | None = None) -> None:
        if node.op == "get_attr":
            env[node] = self._attribute(node, gm)
            return
        if node.op != "call_function":
            raise Refused(f"{node.op} nodes are not ATen calls")
        if node.target is operator.getitem:
            env[node] = env[node.args[0]][node.args[1]]  # pyright: ignore[reportArgumentType]
            return
        if target_name(node.target) == "aten::sym_storage_offset":
            raise Refused("where a view begins in its storage is not known to ONNX")
        if getattr(node.target, "__module__", "") == "torch.return_types":
            env[node] = self._bound(node.args[0], env)  # decompositions return named tuples
            return
        meta = node.meta.get("val")
        if isinstance(meta, (*_SYMBOLS, int, float, bool)) and self._symbolic(node, meta, env):
            return
        if isinstance(meta, (tuple, list)) and meta and all(isinstance(m, (*_SYMBOLS, int)) for m in meta):
            env[node] = [dim_of(m) for m in meta]
            return
        if target_name(node.target) in _CHECKS:
            env[node] = None
            return
        self._annotate(node)
        args, kwargs = self._bound(node.args, env), self._bound(node.kwargs, env)
        if target_name(node.target) in _BY_MEMORY:
            args[0] = self._as_in_memory(node, args[0])
        env[node] = self.call(node, args, kwargs, meta)

    def _as_in_memory(self, node: torch.fx.Node, value: Any) -> Any:
        """The argument with its axes in the order in which torch's tensor lies in memory."""
        source: Any = node.args[0]
        order = memory_order(source.meta.get("val"))
        if order is None:
            raise Refused("depends on the strides of its argument")
        return value if order == sorted(order) else self.builder.op("Transpose", value, perm=order)

    def _symbolic(self, node: torch.fx.Node, meta: Any, env: Env) -> bool:
        """A number that the shapes tell already needs no node of its own."""
        expr = dim_of(meta)
        if isinstance(expr, sympy.Basic) and not self.sizes.known(expr):
            return False
        env[node] = expr
        return True

    def _annotate(self, node: torch.fx.Node) -> None:
        self.builder.prefix = node.name
        trace = node.meta.get("stack_trace") if self.options.sources else None
        self.builder.metadata = {"smelt.source": user_line(trace)} if trace else {}
        if self.options.modules:
            self.builder.metadata["smelt.module"] = _module_lines(node)

    def _attribute(self, node: torch.fx.Node, gm: torch.fx.GraphModule | None) -> Any:
        owner: Any = gm if gm is not None else node.graph.owning_module
        for part in str(node.target).split("."):
            owner = getattr(owner, part)
        return self.tensor_constant(node.name, owner) if isinstance(owner, torch.Tensor) else owner

    # Values

    def tensor_constant(self, name: str, tensor: torch.Tensor) -> ir.Value:
        """An initializer that shares the tensor's memory."""
        found = self._constants.get(id(tensor))
        if found is not None:
            return found
        with unset_fake_temporarily():  # a compiler runs among fake tensors; this one is real
            data = tensor.detach()
            data = (torch.view_as_real(data.resolve_conj()) if data.dtype in _PAIR else data).contiguous()
            if not data.dim():
                plain = data.float() if data.dtype == torch.bfloat16 else data
                value = self.builder.constant(plain.numpy().copy(), to_onnx(data.dtype))
            else:
                value = self.builder.initializer(name, _shared_tensor(data))
        self._constants[id(tensor)] = value
        self._constants[("kept", id(tensor))] = tensor  # pyright: ignore[reportArgumentType]  # ids stay unique while it lives
        return value

    def described(self, value: ir.Value, tensor: torch.Tensor) -> ir.Value:
        """State the type and shape of a value, and remember which sizes it tells."""
        return self.stated(value, meta_of(tensor))

    def stated(self, value: ir.Value, meta: Meta) -> ir.Value:
        if value.dtype is None:
            value.dtype = meta.dtype
        names = self.options.dim_names
        if meta.dims and any(dim is None for dim in meta.dims):
            value.shape = ir.Shape(meta.dims)
            return value
        value.shape = ir.Shape([dim_text(dim, names) for dim in meta.dims])
        self.sizes.learn_shape(value, meta.dims, names)
        return value

    def _bound(self, args: Any, env: Env) -> Any:
        """Arguments with FX nodes replaced by what they gave."""
        if isinstance(args, torch.fx.Node):
            return env[args]
        if isinstance(args, (list, tuple)):
            return [self._bound(item, env) for item in args]
        if isinstance(args, dict):
            return {name: self._bound(item, env) for name, item in args.items()}
        return args

    # Calls

    def call(self, node: torch.fx.Node, args: Any, kwargs: Any, meta: Any) -> Any:
        """The first converter of the chain that manages."""
        outs = metas_of(meta)
        if outs and all(isinstance(out, Meta) and _has_no_element(out) for out in outs):
            return self._resolved([self._empty(out) for out in outs], meta, node)
        reasons: list[str] = []
        for origin, attempt in self._chain(node, args, kwargs, meta):
            mark = self._mark()
            try:
                result = attempt()
                if origin == "torchlib":
                    _check_types(result, meta)
                result = self._resolved(result, meta, node)
            except Exception as error:  # a converter that fails, a user's too, is one that refuses
                self._rewind(mark)
                said = isinstance(error, (Refused, ExportError))
                reasons.append(
                    str(error) if said else f"the {origin} converter failed: {type(error).__name__}: {error}"
                )
                continue
            self.report.count(target_name(node.target), origin)
            return result
        raise Refused("; ".join(dict.fromkeys(reasons)))

    def _empty(self, meta: Meta) -> ir.Value:
        """A tensor without elements, which needs no computation (and for which many kernels are not written)."""
        value = ir.Tensor(np.zeros(1, meta.dtype.numpy()), dtype=meta.dtype)
        return self.builder.op("ConstantOfShape", self.sizes.vector(meta.dims), value=value)

    def _chain(self, node: torch.fx.Node, args: Any, kwargs: Any, meta: Any) -> Any:
        target = node.target
        outs = metas_of(meta)
        complex_ = any(isinstance(out, Meta) and out.complex for out in outs) or _has_complex(node)
        found = find(target_name(target))
        ours = found if found is not None and (found.complex or not complex_) else None
        if target_name(target).partition(".")[0] in _FIRST_RESULT_ONLY and _reads_later_results(node):
            yield "table", lambda: _nothing("only its first result is computed")
            return
        table_last = ours is not None and ours.origin == "table" and self.options.exporter == "torch"
        if ours is not None and not table_last:
            yield ours.origin, lambda: self._by_table(ours, target, args, kwargs, outs)
        # What the table refuses, torchlib may get wrong: it is asked only about ops that the table does not know.
        if (ours is None or table_last) and self.options.torchlib and isinstance(target, OpOverload):
            yield "torchlib", lambda: _torchlib.lower(target, args, kwargs, _has_complex(node), self.sizes)
        if isinstance(target, HigherOrderOperator):
            yield "table", lambda: lower_higher_order(self, target_name(target), args, kwargs)
        elif self.options.decompose:
            yield "decomposition", lambda: self._by_decomposition(node, args, kwargs)
        if table_last:
            yield "table", lambda: self._by_table(ours, target, args, kwargs, outs)
        if not isinstance(target, (OpOverload, HigherOrderOperator)):
            yield "table", lambda: _nothing(f"{target_name(target)} is no ATen op")

    def _by_table(self, found: Any, target: Any, args: Any, kwargs: Any, outs: tuple[Any, ...]) -> Any:
        if found.standalone and not self.options.standalone:
            raise Refused("torch's own kernel is faster")
        arguments, defaults = bind(target, args, kwargs)
        return found(Call(found.target, arguments, outs, self.builder, self.sizes), defaults)

    def _by_decomposition(self, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        if any("val" not in source.meta for source in node.all_input_nodes):
            raise Refused("a decomposition needs the meta data of all arguments")
        metas = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        gm = decompose.decomposed(node.target, *metas, new_guards=self.options.new_guards)
        given = pytree.tree_leaves((args, kwargs), is_leaf=lambda x: x is None)
        leaves = pytree.tree_leaves(metas, is_leaf=lambda x: x is None)
        values = [value for value, leaf in zip(given, leaves, strict=True) if decompose.is_traced(leaf)]
        return self.inlined(gm, values)

    @contextmanager
    def inside(self) -> Generator[Scope, None, None]:
        """Build a subgraph: its nodes are in the scope, and what it tells of sizes stays inside."""
        with self.builder.subgraph() as scope, self.sizes.inside():
            yield scope

    def _received(self, node: torch.fx.Node, value: Any) -> Any:
        """What a nested graph knows an argument as: a number is a symbol, and a tensor tells its sizes."""
        meta = node.meta.get("val")
        if not isinstance(value, ir.Value):
            return value
        if isinstance(meta, _SYMBOLS):
            expr = dim_of(meta)
            self.sizes.learn_scalar(value, expr)
            return expr
        if isinstance(meta, torch.Tensor):
            self.sizes.learn_shape(value, meta_of(meta).dims, self.options.dim_names)
        return value

    def inlined(self, gm: torch.fx.GraphModule, values: list[Any]) -> Any:
        """Lower a nested graph in place; its results."""
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        env: Env = {node: self._received(node, value) for node, value in zip(placeholders, values, strict=True)}
        metadata, prefix = self.builder.metadata, self.builder.prefix
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            try:
                self.node(node, env, gm)
            except Refused as refused:
                raise Refused(f"decomposes into {target_name(node.target)}: {refused}") from refused
            finally:
                self.builder.metadata, self.builder.prefix = metadata, prefix
        results = next(node for node in gm.graph.nodes if node.op == "output").args[0]
        return self._bound(results, env)

    def _mark(self) -> tuple[Any, ...]:
        scope = self.builder.scopes[-1]
        return len(scope.nodes), len(scope.memo), self.sizes.mark()

    def _rewind(self, mark: tuple[Any, ...]) -> None:
        """Forget what a converter appended before it refused."""
        scope = self.builder.scopes[-1]
        for node in reversed(scope.nodes[mark[0] :]):
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        del scope.nodes[mark[0] :]
        while len(scope.memo) > mark[1]:
            scope.memo.popitem()
        self.sizes.rewind(mark[2])

    def _resolved(self, result: Any, meta: Any, node: torch.fx.Node) -> Any:
        """Results in the types that torch says, with their shapes."""
        if isinstance(meta, (list, tuple)):
            results = [result] if isinstance(result, ir.Value) else list(result)
            if len(results) != len(meta):
                raise Refused(f"the converter gave {len(results)} results of {len(meta)}")
            return [
                self._resolved_one(r, m, f"{node.name}_{i}") for i, (r, m) in enumerate(zip(results, meta, strict=True))
            ]
        if isinstance(result, (list, tuple)) and len(result) == 1:
            result = result[0]
        return self._resolved_one(result, meta, node.name)

    def _resolved_one(self, result: Any, meta: Any, name: str) -> Any:
        if not isinstance(result, ir.Value):
            if isinstance(meta, torch.Tensor) and result is not None:
                raise Refused(f"the converter gave a {type(result).__name__}, not a tensor")
            return result
        if isinstance(meta, torch.Tensor):
            said = meta_of(meta)
            if result.dtype is not None and result.dtype != said.dtype:
                result = self.builder.cast(result, said.dtype)
            return self._named(self._stated_result(result, said), name)
        if isinstance(meta, _SYMBOLS):
            expr = dim_of(meta)
            if isinstance(expr, sympy.Basic):
                self.sizes.learn_scalar(result, expr)
            return expr
        return result

    def _stated_result(self, result: ir.Value, meta: Meta) -> ir.Value:
        """A graph input or initializer keeps the shape that it came with."""
        return result if result.producer() is None and result.shape is not None else self.stated(result, meta)

    def _named(self, value: ir.Value, name: str) -> ir.Value:
        """The result of a node carries the node's name, if it was made for it."""
        made = value.producer() is not None and (value.name or "").startswith(f"{self.builder.prefix}.")
        if made and not self.builder.taken(name):
            value.name = self.builder.unique(name)
        return value


def _module_lines(node: torch.fx.Node) -> str:
    """The modules whose forward the node comes from, outermost first: path and class."""
    stack: Any = node.meta.get("nn_module_stack") or {}
    kinds = [(path, k if isinstance(k, str) else f"{k.__module__}.{k.__qualname__}") for path, k in stack.values()]
    return "\n".join(f"{path} {kind}" for path, kind in kinds)


def _shared_tensor(data: torch.Tensor) -> ir.TensorProtocol:
    """The same memory as an ONNX tensor."""
    try:
        return ir.Tensor(data.numpy(), dtype=to_onnx(data.dtype))
    except TypeError:  # numpy has no such type
        return tensor_adapters.TorchTensor(data)


def bind(target: Any, args: Any, kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments by name with defaults filled in, and the defaults, by the torch schema."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return {f"arg{index}": arg for index, arg in enumerate(args)} | dict(kwargs), {}
    arguments: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    positional = iter(args)
    for formal in schema.arguments:
        name = "from_" if formal.name == "from" else formal.name
        defaults[name] = formal.default_value if formal.has_default_value() else None
        if not formal.kwarg_only:
            missing = object()
            value = next(positional, missing)
            if value is not missing:
                arguments[name] = value
                continue
        arguments[name] = kwargs.get(formal.name, defaults[name])
    return arguments, defaults


def _check_types(result: Any, meta: Any) -> None:
    """torchlib leaves promotion to others: what it computes in another type than torch may be another number."""
    results = result if isinstance(result, (list, tuple)) else (result,)
    metas = meta if isinstance(meta, (list, tuple)) else (meta,)
    for value, said in zip(results, metas, strict=False):
        if isinstance(value, ir.Value) and isinstance(said, torch.Tensor) and value.dtype is not None:
            expected = meta_of(said).dtype
            if value.dtype != expected:
                raise Refused(f"torchlib computes in {value.dtype.name}, torch in {expected.name}")


def _has_no_element(meta: Meta) -> bool:
    return 0 in meta.dims and all(isinstance(dim, int) for dim in meta.dims)


def _nothing(reason: str) -> Any:
    raise Refused(reason)


def _reads_later_results(node: torch.fx.Node) -> bool:
    return any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users)


def _has_complex(node: torch.fx.Node) -> bool:
    for source in node.all_input_nodes:
        for item in metas_of(source.meta.get("val")) if not _exotic(source) else ():
            if isinstance(item, Meta) and item.complex:
                return True
    return False


def _exotic(node: torch.fx.Node) -> bool:
    """Results with types that ONNX has no name for are met where they are used."""
    try:
        metas_of(node.meta.get("val"))
    except Refused:
        return True
    return False


__all__: Final = ["Env", "Lowering", "Origin", "bind", "meta_of", "metas_of", "target_name"]
