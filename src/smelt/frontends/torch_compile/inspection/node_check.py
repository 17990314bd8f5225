"""`check="nodes"`: every node of a graph by itself against torch.

Input: a graph cut into parts, and how to compile a part. Output: a function that computes what the graph does, in
torch, and each node once more in ONNX Runtime on torch's own values. Invariant: errors do not add up from node to node,
so what is named is what is wrong; after the last node, differences are one error that lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from smelt.base.errors import TorchError
from smelt.frontends.torch_compile.graph.split import Part, Split, by_node, fallback_node, outer_graph
from smelt.frontends.torch_compile.inspection.debug import difference
from smelt.frontends.torch_compile.parts.part import CompiledPart

_LISTED: Final = 20
Boxed = Callable[[list[Any]], Sequence[Any]]


class CheckedNode(torch.nn.Module):
    """Gives torch's results and notes how ONNX Runtime's differ. A part that could not be made says nothing."""

    def __init__(self, part: Part, made: torch.nn.Module, tolerance: float, findings: list[str]) -> None:
        super().__init__()
        self.part = part
        self.made = made
        self.tolerance = tolerance
        self.findings = findings

    def forward(self, *args: Any) -> Sequence[Any]:
        wanted: Sequence[Any] = self.part.module(*args)
        if isinstance(self.made, CompiledPart):
            self._compare(self.made, args, wanted)
        return wanted

    def _compare(self, made: CompiledPart, args: Sequence[Any], wanted: Sequence[Any]) -> None:
        try:
            found = made.call(args)
        except Exception as error:
            self._note(f"fails: {type(error).__name__}: {str(error)[:200]}")
            return
        for place, (mine, torchs) in enumerate(zip(found, wanted, strict=True)):
            problem = difference(mine, torchs, self.tolerance)
            if problem:
                self._note(f"result {place} {problem}" if len(wanted) > 1 else problem)

    def _note(self, text: str) -> None:
        node = fallback_node(self.part.members[0], text)
        line = f"  # {node.source}" if node.source else ""
        self.findings.append(f"{node.name} = {node.target}: {text}{line}")


def checked_nodes(cut: Split, compile: Callable[[Part], torch.nn.Module], tolerance: float) -> Boxed:
    """The graph in torch, each node compared."""
    findings: list[str] = []
    single = by_node(cut)
    graph = outer_graph(single, [CheckedNode(part, compile(part), tolerance, findings) for part in single.parts])

    def run(args: list[Any]) -> Sequence[Any]:
        given = list(args)
        args.clear()
        findings.clear()
        results = graph(*given)
        if findings:
            raise _differences(findings)
        return results

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _differences(findings: Sequence[str]) -> TorchError:
    more = [] if len(findings) <= _LISTED else [f"... and {len(findings) - _LISTED} more"]
    lines = "\n  ".join([*findings[:_LISTED], *more])
    return TorchError(
        "SM-TORCH-002", f"{len(findings)} results differ from torch's, each on the same values:\n  {lines}"
    )
