"""A schedule as text, for people: what each kernel computes, before it has a layout of lines in C.

Input: the steps of a schedule. Output: one paragraph per kernel: its work, its loops, each element by name, what is
accumulated and what is stored. Invariant: shared expressions are told once, so that the text is as long as the code;
names of nodes and sizes, which are the model's, are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from smelt.ir.kernel import Buffer, Expr, Ix, Tensor, Var, show
from smelt.ir.kernel import expr as E

from .cluster import (
    BackToBack,
    BatchedGemm,
    Cluster,
    Extern,
    Fill,
    Loops,
    Matrix,
    Operand,
    Pack,
    PackedGemm,
    RunningTotal,
    SegmentCopy,
    Step,
    UnpackedGemm,
    WindowGemm,
    Work,
)


def format_steps(steps: Iterable[Step]) -> str:
    """One paragraph per step, in execution order."""
    return "\n".join("".join(f"{_escaped(line)}\n" for line in _step(*one)) for one in enumerate(steps))


def _escaped(line: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _step(place: int, step: Step) -> Iterator[str]:
    if isinstance(step, BackToBack):
        yield f"step {place}: two products in one task, which keeps {_buffer(step.kept[1])}"
        for role, cluster in (("producer", step.producer), ("consumer", step.consumer)):
            yield f"  {role}: {work_text(cluster.work)}"
            yield from _lines(cluster)
    else:
        yield f"step {place}: {work_text(step.work)}"
        yield from _lines(step)


def work_text(work: Work) -> str:
    """What kind of kernel it is, and what it reads and writes beside its loops."""
    match work:
        case Loops():
            return "loops"
        case RunningTotal(made):
            return f"running total {_tensor(made)}"
        case Fill(buffer, value):
            return f"fill {_buffer(buffer)} with {value!r}"
        case SegmentCopy(rows):
            return f"copy of a KV-cache segment, unless {show(rows)} rows are few enough for a GEMV"
        case Pack():
            return f"pack {_operand(work.source)} into {_buffer(work.target)}"
        case Extern():
            read, made = ([b for b in some if b is not None] for some in (work.operands, work.results))
            return f"function {work.function.name}: {_buffers(read)} -> {_buffers(made)}"
        case _:
            return _product_text(work)


def _product_text(work: PackedGemm | BatchedGemm | UnpackedGemm | WindowGemm) -> str:
    match work:
        case PackedGemm():
            made = ", ".join(_tensor(tensor) for tensor in (work.made, *work.siblings))
            return f"GEMM {made} = {_left(work.left)} x weights packed ahead of time"
        case BatchedGemm():
            segments = f", in {len(work.segments)} KV-cache segments" if work.segments else ""
            return f"batched GEMM {_tensor(work.made)} = {_left(work.left)} x panels {_operand(work.right)}{segments}"
        case UnpackedGemm():
            return f"unpacked GEMM {_tensor(work.made)} = {_matrix(work.left)} x {_matrix(work.right)}"
        case WindowGemm():
            weights = "" if work.weights is None else f" by {_buffer(work.weights)}"
            return f"window {_tensor(work.made)} over {_operand(work.image)}{weights}"


def _lines(cluster: Cluster) -> Iterator[str]:
    if cluster.sources:
        yield f"  from {', '.join(map(repr, cluster.sources))}"
    if cluster.vars:
        yield f"  for {_loops(cluster.vars)}"
    if cluster.reduced:
        yield f"    for {_loops(cluster.reduced)}"
    values = [r.value for r in cluster.reductions.values()] + [s.value for s in cluster.stores]
    values += [r.position for r in cluster.reductions.values() if r.position is not None]
    names: dict[int, str] = {}
    for node in E.walk(*values):
        text = _expression(node, names)
        names[node.uid] = f"%{len(names)}"
        yield f"      {names[node.uid]} = {text} : {node.dtype}"
    for tensor, reduction in cluster.reductions.items():
        at = "" if reduction.position is None else f" at {names[reduction.position.uid]}"
        yield f"      {_tensor(tensor)} = {reduction.kind} of {names[reduction.value.uid]}{at}"
    for store in cluster.stores:
        yield f"      {store.buffer.name}[{show(store.offset)}] = {names[store.value.uid]}"


def _expression(node: Expr, names: dict[int, str]) -> str:
    kind = node.kind
    if isinstance(kind, E.Op):
        return f"{kind.name}({', '.join(names[arg.uid] for arg in kind.args)})"
    if isinstance(kind, E.Load):
        return f"{kind.buffer.name}[{show(kind.offset)}]"
    if isinstance(kind, E.Ref):
        return _tensor(kind.tensor) + (f"[{_shape(kind.index)}]" if kind.index else "")
    return repr(kind.value) if isinstance(kind, E.Const) else show(kind.ix)


def _loops(loops: Sequence[Var]) -> str:
    return ", ".join(f"{v.name} < {show(v.extent)}" for v in loops)


def _shape(sizes: Iterable[Ix]) -> str:
    return ", ".join(map(show, sizes))


def _tensor(tensor: Tensor) -> str:
    return f"t{tensor.uid}"


def _buffer(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype}[{_shape(buffer.shape)}]"


def _buffers(buffers: Iterable[Buffer]) -> str:
    return ", ".join(map(_buffer, buffers)) or "nothing"


def _operand(operand: Operand) -> str:
    return f"{operand.buffer.name}[{show(operand.offset)}]"


def _left(left: Operand | Cluster) -> str:
    return _operand(left) if isinstance(left, Operand) else "rows of the producer"


def _matrix(matrix: Matrix) -> str:
    steps = f"{show(matrix.start)} + i * {show(matrix.down)} + j * {show(matrix.across)}"
    return f"{matrix.buffer.name}[{steps}]"
