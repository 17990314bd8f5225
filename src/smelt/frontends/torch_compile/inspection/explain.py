"""What `torch.compile(backend="smelt")` makes of a model.

Input: a model and example arguments. Output: `Explanation`: graphs, breaks, sessions, kernels, and the nodes that stay
in torch with the reason and the line of the program. Invariant: the model is run as it is, its parameters unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from smelt.frontends.torch_compile._torch import dynamo, tree_leaves
from smelt.frontends.torch_compile.backend import smelt_backend
from smelt.frontends.torch_compile.inspection.record import GraphReport, Listening, PartReport
from smelt.frontends.torch_compile.options import TorchOptions

_LINES = 12


@dataclass(frozen=True)
class Explanation:
    """`graphs` as they came; `breaks` are the reasons why Dynamo cut the program."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[str, ...]

    @property
    def nodes(self) -> int:
        return sum(graph.nodes for graph in self.graphs)

    @property
    def in_ort(self) -> int:
        return sum(graph.taken for graph in self.graphs)

    @property
    def fallback_nodes(self) -> Counter[tuple[str, str]]:
        """(target, reason) of the nodes that stay in torch."""
        return Counter((node.target, node.reason) for graph in self.graphs for node in graph.fallback_nodes)

    def __str__(self) -> str:
        lines = [f"{_count(len(self.graphs), 'graph')}, {_count(len(self.breaks), 'graph break')}"]
        lines += [f"  break: {reason}" for reason in self.breaks]
        for number, graph in enumerate(self.graphs):
            lines += _graph_lines(number, graph)
        return "\n".join(lines)


def explain(
    model: Callable[..., Any], *args: Any, options: TorchOptions | Mapping[str, Any] | None = None, **kwargs: Any
) -> Explanation:
    """Compile the model anew, run it once on the given arguments, and say what became of it."""
    plain: Any = getattr(model, "_orig_mod", model)
    found: Counter[str] = Counter()
    before: Counter[str] = Counter(dynamo.utils.counters["graph_break"])
    dynamo.reset()
    with Listening() as record:
        compiled = torch.compile(plain, backend=_with(options))
        result = compiled(*args, **kwargs)
        _backward(result)
        found.update(dynamo.utils.counters["graph_break"])
    found.subtract(before)
    dynamo.reset()
    return Explanation(tuple(record.graphs), tuple(str(reason) for reason, count in found.items() if count > 0))


def _with(options: TorchOptions | Mapping[str, Any] | None) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return smelt_backend(graph, example_inputs, options=options)

    return backend


def _backward(result: Any) -> None:
    """Backward graphs are compiled when they are first run; gradients of parameters are left as they were."""
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    found = [leaf for leaf in leaves if leaf.requires_grad and leaf.grad_fn is not None]
    if not found:
        return
    roots = _leaves(found)
    torch.autograd.grad([leaf.sum() for leaf in found], roots, allow_unused=True)


def _leaves(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that gradients would be accumulated into."""
    found: dict[int, torch.Tensor] = {}
    pending: list[Any] = [result.grad_fn for result in results]
    seen: set[Any] = set(pending)
    while pending:
        function = pending.pop()
        variable = getattr(function, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return list(found.values())


def _graph_lines(number: int, graph: GraphReport) -> list[str]:
    head = f"graph {number} ({graph.kind}): {graph.taken} of {_count(graph.nodes, 'node')} in ONNX Runtime"
    lines = [f"{head}, {_count(len(graph.parts), 'session')}, {graph.seconds:.1f} s to compile"]
    if graph.fallback:
        lines.append(f"  runs in torch: {graph.fallback}")
    for part in graph.parts:
        lines += _part_lines(part)
    reasons = Counter((node.target, node.reason) for node in graph.fallback_nodes)
    sources = {(node.target, node.reason): node.source for node in graph.fallback_nodes}
    for (target, reason), count in reasons.most_common(_LINES):
        where = sources[(target, reason)]
        lines.append(f"  in torch: {count} x {target}: {reason}" + (f" [{where}]" if where else ""))
    if len(reasons) > _LINES:
        lines.append(f"  ... and {len(reasons) - _LINES} more kinds of nodes in torch")
    return lines


def _part_lines(part: PartReport) -> list[str]:
    kernels = f"{part.in_kernels} in native kernels" if part.kernels else "no native kernels"
    lines = [f"  session: {_count(part.nodes, 'node')} as {_count(part.onnx_nodes, 'ONNX node')}, {kernels}"]
    lines += [
        f"    falling back to ONNX Runtime: {count} x {op}: {reason}"
        for (op, reason), count in part.ort_fallbacks.most_common(_LINES)
    ]
    if part.rules:
        took = sum(seconds for _, seconds in part.rules.values())
        lines.append(f"    rules ({took * 1e3:.0f} ms): " + ", ".join(f"{n} x{c}" for n, (c, _) in part.rules.items()))
    return [*lines, *(f"    note: {note}" for note in part.notes)]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
