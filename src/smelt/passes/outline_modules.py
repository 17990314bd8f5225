"""Nodes of one module -> a function of the model, called in their place.

Input: a model whose nodes say which modules they come from (the metadata `smelt.module`, a line "path class" per module
from the outside in), and the classes wanted. Output: the model with a local function per class; instances that compute
alike share one. Invariant: what a module reads (weights too) are inputs of its function, small constants are part of
it; a module whose nodes cannot be taken out as one (something outside lies between them, or one holds a graph) stays as
it is, and is named in the outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from smelt.ir.walk import subgraphs
from smelt.passes.rewriter.outcome import Outcome
from smelt.passes.rewriter.surgery import Names, tensor_of

MODULE = "smelt.module"
DOMAIN = "smelt.modules"
_SMALL = 64
_VIEWS = frozenset(("Unsqueeze", "Squeeze", "Reshape", "Expand", "Cast"))
_SIZES = frozenset((ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL))


@dataclass
class _Instance:
    """One call of a module: its nodes in order, what they read and what others read of them."""

    path: str
    kind: str
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    inputs: list[ir.Value] = field(default_factory=list[ir.Value])
    constants: list[ir.Value] = field(default_factory=list[ir.Value])
    outputs: list[ir.Value] = field(default_factory=list[ir.Value])


class OutlineModules:
    """Make functions of modules whose class `wanted(class)` accepts, the innermost first."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._known: dict[object, ir.Function] = {}

    def __call__(self, model: ir.Model) -> Outcome:
        changes: Counter[str] = Counter()
        names = Names(model)
        for path, kind in _innermost_first(model.graph, self._wanted):
            instance = _instance(model.graph, path, kind)
            if not instance.nodes:
                continue
            if not _separable(instance):
                changes[f"{_class_name(kind)} left as it is: {path}"] += 1
                continue
            self._outline(model, instance, names)
            changes[f"{_class_name(kind)} made a function"] += 1
        for node in model.graph:
            node.metadata_props.pop(MODULE, None)
        return Outcome(changes)

    def _outline(self, model: ir.Model, instance: _Instance, names: Names) -> None:
        key = _structure(instance)
        function = self._known.get(key)
        if function is None:
            function = _function(model, instance)
            self._known[key] = function
            model.functions[function.identifier()] = function
            model.opset_imports.setdefault(DOMAIN, 1)
        _call(model.graph, instance, function, names)


def modules_of(node: ir.Node) -> list[tuple[str, str]]:
    """(path, class) of the modules that the node comes from, outermost first."""
    lines = node.metadata_props.get(MODULE, "").splitlines()
    return [(path, kind) for path, _, kind in (line.partition(" ") for line in lines)]


def _innermost_first(graph: ir.Graph, wanted: Callable[[str], bool]) -> list[tuple[str, str]]:
    depth: dict[tuple[str, str], int] = {}
    for node in graph:
        for level, module in enumerate(modules_of(node)):
            if module[0] and wanted(module[1]):
                depth[module] = max(level, depth.get(module, 0))
    return sorted(depth, key=lambda module: -depth[module])


def _instance(graph: ir.Graph, path: str, kind: str) -> _Instance:
    found = _Instance(path, kind)
    inside = {node: None for node in graph if any(each[0] == path for each in modules_of(node))}
    _give_sizes_away(inside)
    found.nodes = list(inside)
    read = {value: None for node in inside for value in node.inputs if value is not None}
    for value in read:
        if value.producer() in inside:
            continue
        (found.constants if _belongs(value) else found.inputs).append(value)
    made = [value for node in inside for value in node.outputs]
    found.outputs = [v for v in made if v.is_graph_output() or any(u not in inside for u, _ in v.uses())]
    return found


def _give_sizes_away(inside: dict[ir.Node, None]) -> None:
    """Sizes, masks and views that others use too are computed before the module: they were only met in it first."""
    light: dict[ir.Node, bool] = {}
    for node in inside:
        own = node.op_type in _VIEWS or all(value.dtype in _SIZES for value in node.outputs)
        light[node] = own and all(light.get(maker, True) for maker in _makers(node))
    shared = [n for n in inside if light[n] and any(u not in inside for v in n.outputs for u, _ in v.uses())]
    while shared:
        node = shared.pop()
        if node in inside:
            del inside[node]
            shared.extend(_makers(node))


def _makers(node: ir.Node) -> list[ir.Node]:
    return [maker for value in node.inputs if value is not None and (maker := value.producer()) is not None]


def _belongs(value: ir.Value) -> bool:
    """A small constant that is no parameter."""
    tensor = tensor_of(value)
    return tensor is not None and tensor.size <= _SMALL and not (value.name or "").startswith(("p_", "b_", "c_"))


def _separable(instance: _Instance) -> bool:
    """No way leads out of the nodes and back in, and none holds a graph."""
    inside = set(instance.nodes)
    if not instance.outputs or any(True for node in inside for _ in subgraphs(node)):
        return False
    pending = [user for value in instance.outputs for user, _ in value.uses() if user not in inside]
    seen = set(pending)
    while pending:
        for value in pending.pop().outputs:
            for user, _ in value.uses():
                if user in inside:
                    return False
                if user not in seen:
                    seen.add(user)
                    pending.append(user)
    return True


def _structure(instance: _Instance) -> object:
    """What makes two instances one function: their nodes, by the places of their values."""
    place = {value: ("in", index) for index, value in enumerate(instance.inputs)}
    place |= {value: ("const", _content(value)) for value in instance.constants}  # pyright: ignore[reportAssignmentType]
    lines: list[object] = [_class_name(instance.kind)]
    for node in instance.nodes:
        attributes = tuple(sorted((name, str(attribute)) for name, attribute in node.attributes.items()))
        read = tuple(None if value is None else place[value] for value in node.inputs)
        lines.append((node.op_identifier(), attributes, read))
        for value in node.outputs:
            place[value] = ("made", len(place))
    return tuple(lines), tuple(place[value] for value in instance.outputs)


def _content(value: ir.Value) -> object:
    tensor = tensor_of(value)
    assert tensor is not None
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()


def _class_name(kind: str) -> str:
    return kind.rpartition(".")[2]


def _function(model: ir.Model, instance: _Instance) -> ir.Function:
    copies = {value: _counterpart(value, _inner_name(value, instance.path)) for value in instance.inputs}
    _tell_apart(copies.values())
    inputs = list(copies.values())
    nodes: list[ir.Node] = []
    for value in instance.constants:
        copies[value] = _counterpart(value, value.name or "")
        nodes.append(ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor_of(value))], outputs=[copies[value]]))  # pyright: ignore[reportArgumentType]
    for node in instance.nodes:
        made = [_counterpart(value, value.name or "") for value in node.outputs]
        copies |= dict(zip(node.outputs, made, strict=True))
        read = [None if value is None else copies[value] for value in node.inputs]
        nodes.append(
            ir.Node(node.domain, node.op_type, read, list(node.attributes.values()), outputs=made, name=node.name)
        )
    _tell_apart(copies.values())
    outputs = [copies[value] for value in instance.outputs]
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={**model.opset_imports, DOMAIN: 1})
    return ir.Function(DOMAIN, _free_name(model, _class_name(instance.kind)), graph=graph, attributes=[])


def _counterpart(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)


def _inner_name(value: ir.Value, path: str) -> str:
    """A weight's name without the path of the module that holds it."""
    name = value.name or ""
    kind, _, rest = name.partition("_")
    within = path.replace(".", "_") + "_"
    return rest.removeprefix(within) if kind in ("p", "b", "c") and rest.startswith(within) else name


def _tell_apart(values: Iterable[ir.Value]) -> None:
    taken: set[str] = set()
    for value in values:
        name, number = value.name or "v", 0
        while (found := name if not number else f"{name}_{number}") in taken:
            number += 1
        taken.add(found)
        value.name = found


def _free_name(model: ir.Model, name: str) -> str:
    taken = {function.name for function in model.functions.values()}
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


def _call(graph: ir.Graph, instance: _Instance, function: ir.Function, names: Names) -> None:
    """One node in place of many; graph outputs keep their names."""
    outputs = [ir.Value(type=value.type, shape=value.shape) for value in instance.outputs]
    call = ir.Node(DOMAIN, function.name, instance.inputs, outputs=outputs, name=names.like(instance.path))
    inner = modules_of(instance.nodes[0])
    outer = inner[: [path for path, _ in inner].index(instance.path)]
    if outer:
        call.metadata_props[MODULE] = "\n".join(f"{path} {kind}" for path, kind in outer)
    graph.insert_after(instance.nodes[-1], call)
    for old, new in zip(instance.outputs, outputs, strict=True):
        new.name = old.name
        _take_over(graph, old, new, set(instance.nodes))
    for value in (v for node in instance.nodes for v in node.outputs):
        value.name = None
    for node in reversed(instance.nodes):
        graph.remove(node, safe=True)
    graph.sort()


def _take_over(graph: ir.Graph, old: ir.Value, new: ir.Value, inside: set[ir.Node]) -> None:
    for user, index in list(old.uses()):
        if user not in inside:
            user.replace_input_with(index, new)
    for index, output in enumerate(graph.outputs):
        if output is old:
            graph.outputs[index] = new


def wanted_classes(chosen: bool | Sequence[object]) -> Callable[[str], bool]:
    """Which classes become functions: all but those of torch itself, or those listed (classes or their names)."""
    if isinstance(chosen, bool):
        return lambda kind: chosen and not kind.startswith("torch.")
    names = {item if isinstance(item, str) else _full_name(item) for item in chosen}
    return lambda kind: kind in names or _class_name(kind) in names


def _full_name(item: object) -> str:
    return f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '')}"
