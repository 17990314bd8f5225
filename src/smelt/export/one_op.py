"""Programs of a single call, for eager execution.

Input: a torch op and its arguments; of tensors only dtype and shape are read. Output: a `Translation` whose inputs are
the tensors in the order of the arguments. Invariant: sizes other than 0 and 1 are dynamic; what the program assumes of
them beyond that is in `Translation.guards`, so that it may serve every call that `fits`.
"""

# What torch and sympy hand over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from smelt.base.errors import ExportError
from smelt.export.records import ExportOptions, Guards, Translation
from smelt.export.sizes import dim_of
from smelt.export.translate import translate


def one_op(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, out_meta: Any = None, *,
    dynamic: bool = True, options: ExportOptions | None = None,
) -> Translation:  # fmt: skip
    """The program of `target(*args, **kwargs)`. `out_meta`: fake results, when they are known already.

    Where torch cannot evaluate the op on dynamic sizes, the program is for the given sizes alone, as its guards say.
    """
    if dynamic:
        try:
            return _program(target, args, kwargs or {}, out_meta, True, options or ExportOptions())
        except ExportError as error:
            if error.code != "SM-EXPORT-002":
                raise
    return _program(target, args, kwargs or {}, out_meta, False, options or ExportOptions())


def _program(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out_meta: Any, dynamic: bool, options: ExportOptions
) -> Translation:
    environment = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    graph = torch.fx.Graph()
    fakes: list[Any] = []
    nodes: list[Any] = []
    shapes: list[tuple[Any, ...]] = []
    for index, leaf in enumerate(leaves):
        fake, node = leaf, leaf
        if isinstance(leaf, torch.Tensor):
            fake = _fake(mode, environment, leaf, f"t{index}", dynamic)
            node = graph.placeholder(f"t{index}")
            node.meta["val"] = fake
            shapes.append(tuple(dim_of(size) for size in fake.shape))
        fakes.append(fake)
        nodes.append(node)
    if out_meta is None:
        out_meta = _evaluated(target, mode, *pytree.tree_unflatten(fakes, spec))
    given, named = pytree.tree_unflatten(nodes, spec)
    call = graph.call_function(target, given, named)
    call.meta["val"] = out_meta
    graph.output(_results(graph, call, out_meta))
    translation = translate(torch.fx.GraphModule(torch.nn.Module(), graph), options=replace(options, new_guards=True))
    return replace(translation, guards=Guards(tuple(shapes), tuple(guard.expr for guard in environment.guards)))


def _fake(mode: FakeTensorMode, environment: ShapeEnv, tensor: torch.Tensor, name: str, dynamic: bool) -> torch.Tensor:
    sizes: list[Any] = list(tensor.shape)
    if dynamic:
        sizes = [_symbol(environment, size, f"{name}_{axis}") if size > 1 else size for axis, size in enumerate(sizes)]
    with mode:
        return torch.empty(sizes, dtype=tensor.dtype, device="cpu")


def _symbol(environment: ShapeEnv, size: int, name: str) -> Any:
    source = ConstantSource(name)
    symbol = environment.create_symbol(size, source, dynamic_dim=DimDynamic.DYNAMIC)
    return environment.create_symintnode(symbol, hint=size, source=source)


def _evaluated(target: Any, mode: FakeTensorMode, args: Any, kwargs: Any) -> Any:
    try:
        with mode, torch.no_grad():
            return target(*args, **kwargs)
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ExportError("SM-EXPORT-002", f"{target} does not accept these arguments: {text}") from error


def _results(graph: torch.fx.Graph, call: torch.fx.Node, meta: Any) -> Any:
    if not isinstance(meta, (list, tuple)):
        return (call,)
    results: list[Any] = []
    for index, item in enumerate(meta):
        node = graph.call_function(operator.getitem, (call, index))
        node.meta["val"] = item
        results.append(node)
    return tuple(results)
