"""Ops around 8-bit layers that stay on bytes: movements, and functions of one number as tables of 256 bytes.

Input: a call of an op whose operand was restored from bytes. Output: rules of `rules.py`. Invariant: a movement moves
the bytes and restores them behind, which gives the same numbers; a table is made by the op's own declaration from all
256 bytes, and joins the layer whose result it is a function of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from typing import cast as typed

from smelt.ir.kernel import Stored, Tensor
from smelt.ops.quantize import dequantize, quantize
from smelt.ops.registry import Call, lookup

from .int8_layers import Quantized, Restored, layer_result
from .int8_seen import Move, OfBytes, grows, same_steps

if TYPE_CHECKING:
    from .builder import CpuBuilder

Rule = Callable[[Call], "Sequence[Tensor | None] | None"]
MOVEMENTS: Final = (
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Identity", "Expand", "Gather",
    "DepthToSpace", "SpaceToDepth", "Tile",
)  # fmt: skip
FUNCTIONS: Final = (
    "Gelu", "Sigmoid", "Tanh", "Erf", "HardSigmoid", "HardSwish", "Elu", "Selu", "Celu", "LeakyRelu", "Softplus",
    "Softsign", "Mish", "Swish", "Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Neg", "Relu", "Clip",
)  # fmt: skip
WITH_A_NUMBER: Final = ("Add", "Sub", "Mul", "Div", "Pow")


def _builder(call: Call) -> CpuBuilder:
    return typed("CpuBuilder", call.k)


def _restored(call: Call, q: Tensor, like: Restored) -> Tensor:
    inputs = [q, like.scale, like.zero]
    return typed("Tensor", dequantize(replace(call, op="DequantizeLinear", opset=19, attributes={}, inputs=inputs)))


def _remember(call: Call, made: Tensor, like: Restored) -> Tensor:
    """A moved tensor of bytes, restored."""
    out = _restored(call, made, like)
    _builder(call).seen.restored[out] = replace(like, q=made)
    return out


def moved(domain: str) -> Rule:
    """Elements of a restored tensor in other places: its bytes are moved."""

    def rule(call: Call) -> Sequence[Tensor | None] | None:
        seen = _builder(call).seen
        found = seen.restored.get(call.x(0))
        declaration = lookup(domain, call.op, call.opset)
        if found is None or declaration is None or not _may_move(found):
            return None
        alone = seen.readers.get(call.x(0), 2) == 1 and seen.readers.get(found.q, 1) == 1

        def move(q: Tensor) -> tuple[Tensor | None, ...]:
            return declaration.lower(replace(call, inputs=[q, *call.inputs[1:]]))

        made = move(found.q)
        if len(made) == 1 and made[0] is not None:
            seen.moves[made[0]] = Move(found.q, lambda q: typed("Tensor", move(q)[0]), alone)
        return [None if one is None else _remember(call, one, found) for one in made]

    return rule


def _may_move(found: Restored) -> bool:
    stored = found.q.definition
    weight = isinstance(stored, Stored) and stored.buffer.weight is not None
    return found.whole and found.scale is not None and not weight


def joined(call: Call) -> Sequence[Tensor | None] | None:
    """Concat of tensors restored by the same steps."""
    seen = _builder(call).seen
    found = [seen.restored.get(x) for x in call.inputs if x is not None]
    parts = [of for of in found if of is not None]
    if not parts or len(parts) < len(call.inputs) or not all(_may_move(of) for of in parts):
        return None
    if not all(same_steps(parts[0], of) for of in parts):
        return None
    declaration = lookup("", call.op, call.opset)
    made = None if declaration is None else declaration.lower(replace(call, inputs=[of.q for of in parts]))[0]
    return None if made is None else [_remember(call, made, parts[0])]


# functions of one number


def function_of_bytes(call: Call, domain: str) -> Tensor | None:
    """An op of a restored tensor that nothing else reads, and perhaps of a constant number: remembered."""
    seen = _builder(call).seen
    place = _operand(call)
    if place is None or any(x is not None and x.elements.const != 1 for x in _others(call, place)):
        return None
    x = call.x(place)
    own, before = _function(seen.restored.get(x), seen.functions.get(x))
    declaration = lookup(domain, call.op, call.opset)
    if own is None or seen.readers.get(x, 2) != 1 or declaration is None:
        return None

    def body(values: Tensor) -> Tensor:
        inputs = list(call.inputs)
        inputs[place] = before(values)
        return typed("Tensor", declaration.lower(replace(call, inputs=inputs))[0])

    made = declaration.lower(call)[0]
    if made is not None and made.dtype == "f32" and made.shape == x.shape:
        seen.functions[made] = OfBytes(own, body)
    return made


def _others(call: Call, place: int) -> list[Tensor | None]:
    return [x for i, x in enumerate(call.inputs) if i != place]


def _operand(call: Call) -> int | None:
    """The place of the restored operand."""
    seen = _builder(call).seen
    places = range(min(2, len(call.inputs))) if call.op in WITH_A_NUMBER else range(1)
    known = [i for i in places if call.maybe(i) in seen.restored or call.maybe(i) in seen.functions]
    found = [i for i in known if call.x(i).elements.const != 1]
    return found[0] if len(found) == 1 else None


def _function(own: Restored | None, before: OfBytes | None) -> tuple[Restored | None, Callable[[Tensor], Tensor]]:
    if before is not None:
        return before.own, before.body
    return (own if own is not None and _may_move(own) else None), lambda values: values


def tabulated(call: Call, to: Quantized) -> Tensor | None:
    """QuantizeLinear of a function of a layer's bytes, perhaps moved ones: a table of the layer, then the moves."""
    k = _builder(call)
    found = k.seen.functions.get(call.x(0))
    if found is None or found.own.q.dtype != to.dtype or not grows(found.own):
        return None
    base, moves = _base(k, found.own.q)
    layer = None if base is None else k.seen.quantized.get(base)
    if layer is None or layer.table is not None or layer.depthwise or layer.own is None or layer.dtype != to.dtype:
        return None
    values = _restored(call, k.cast(k.iota((256,), 0), to.dtype), found.own)
    table = typed("Tensor", quantize(replace(call, inputs=[found.body(values), *call.inputs[1:]])))
    made = layer_result(k, replace(layer, table=table))
    for move in reversed(moves):
        made = None if made is None else _moved_again(k, move, made)
    return made


def _moved_again(k: CpuBuilder, move: Move, q: Tensor) -> Tensor:
    made = move.again(q)
    k.seen.moves[made] = replace(move, source=q)
    return made


def _base(k: CpuBuilder, q: Tensor) -> tuple[Tensor | None, list[Move]]:
    """The bytes that were moved to q, if nothing else reads any of them, and the moves, the last first."""
    moves = list[Move]()
    while q in k.seen.moves:
        if k.seen.readers.get(q, 1) != 1 or not k.seen.moves[q].alone:
            return None, []
        moves.append(k.seen.moves[q])
        q = moves[-1].source
    return (q if k.seen.readers.get(q, 2) == 1 else None), moves
