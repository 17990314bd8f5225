"""A region as one C function: learn the sizes, check them, then compute one tensor after the other.

Input: a region of the plan and the facts about its values. Output: `PlainCode`. Invariant: no memory is touched before
every size that it relies on was compared with the shapes of the inputs; every computed tensor is an array of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from smelt.codegen import callable_function
from smelt.ir.backend import RegionCode
from smelt.ir.kernel import Buffer, Function, Ix, Result, Stored, Sym, Tensor, Unsupported, of
from smelt.ir.kernel.index import Atom, coefficient, substitute
from smelt.ir.records import KernelInfo, Region
from smelt.ops import Facts, lower

from .elements import Elements, c_type, constant
from .loops import WRITERS, indented, nest, store, variables


@dataclass(frozen=True)
class PlainCode(RegionCode):
    """`values` are the inputs, none of them packed; `functions` in C are those that it calls."""

    name: str
    text: str
    values: tuple[ir.Value, ...]
    functions: tuple[Function, ...]


def write_region(region: Region, facts: Facts, carriers: Sequence[ir.Value], name: str) -> PlainCode:
    """`carriers` are values that may be read for their shapes alone: the inputs of the model."""
    writer = _Writer(region, facts, carriers)
    text = writer.function(name)
    values = tuple(writer.inputs)
    nodes = tuple(node.name or node.op_type for node in region.nodes)
    info = KernelInfo(name, "loops", nodes, f"scalar loops over {len(writer.arrays)} arrays")
    return PlainCode(values, region.outputs, (info,), name, text, values, tuple(writer.functions.values()))


class _Writer:
    def __init__(self, region: Region, facts: Facts, carriers: Sequence[ir.Value]) -> None:
        self.region, self.facts, self.carriers = region, facts, carriers
        self.builder = facts.builder()
        self.made_inside = {v for node in region.nodes for v in node.outputs}
        self.inside: dict[ir.Value, Tensor] = {}
        self.by_buffer: dict[int, ir.Value] = {}
        self.inputs: dict[ir.Value, int] = {}
        self.arrays: dict[int, str] = {}
        self.numbers = itertools.count()
        self.symbols: dict[Sym, str] = {}
        self.functions: dict[str, Function] = {}  # by name
        self.called: dict[int, list[str]] = {}
        self.sizes: list[str] = []
        self.checks: list[str] = []
        self.body: list[str] = []

    def function(self, name: str) -> str:
        self._operands()
        for node in self.region.nodes:
            self._node(node)
        for place, value in enumerate(self.region.outputs):
            self._output(place, value)
        shapes = [line for value, place in list(self.inputs.items()) for line in self._shape_checks(value, place)]
        ranks = [self._rank_check(value, place) for value, place in self.inputs.items()]
        data = [self._data(value, place) for value, place in self.inputs.items()]
        lines = [*ranks, *data, *self.sizes, *shapes, *self.checks, *self.body, "return env->code;"]
        declared = [f"int32_t SMELT_NAME({called})(smelt_task *);" for called in self.functions]
        head = ["#include <plain.h>", *declared, f"int32_t SMELT_NAME({name})(smelt_env *env) {{"]
        return "\n".join([*head, *indented(lines), "}", ""])

    # nodes

    def _operands(self) -> None:
        for value in self.region.inputs:
            if value in self.facts.by_value:
                tensor = self.facts.stored(self.builder, value)
                self.inside[value] = self.builder.computable(tensor)
                if isinstance(tensor.definition, Stored):
                    self.by_buffer[tensor.definition.buffer.uid] = value

    def _node(self, node: ir.Node) -> None:
        """Each result that is computed is made here, in the order of the nodes."""
        self.builder.source = node.name or node.op_type
        made = lower(self.facts, self.builder, node, self.inside)
        late = self._require()
        for value, result in zip(node.outputs, made, strict=False):
            if result is not None:
                self.inside[value] = result[0]
                if type(result[0].definition) in (*WRITERS, Result):
                    self.array(result[0])
        self.body += [self._requirement(left, right) for left, right in late]

    def _require(self) -> list[tuple[Ix, Ix]]:
        """Check what the node requires; what is told only by what it computes is returned."""
        late: list[tuple[Ix, Ix]] = []
        for left, right, _ in self.builder.requirements:
            try:
                line = self._requirement(left, right)
            except Unsupported:
                late.append((left, right))
                continue
            (self.body if self._is_found(left) or self._is_found(right) else self.checks).append(line)
        self.builder.requirements.clear()
        return late

    def _requirement(self, left: Ix, right: Ix) -> str:
        a, b = self._size(left), self._size(right)
        return f"if (({a}) != ({b})) return smelt_fail(env, SMELT_E_SHAPE, -1, -1, {a}, {b});"

    def _output(self, place: int, value: ir.Value) -> None:
        if value not in self.inside:
            raise Unsupported("an output of the op has no lowering yet")
        tensor = self.builder.cast(self.inside[value], self.facts.by_value[value].dtype)
        loops, element, array = variables(tensor.shape), Elements(self), f"out{place}"
        where = [of(v) for v in loops]
        made = element.text(tensor.at(where))
        body = nest(self, loops, [*element.lines, store(self, array, tensor, where, made)])
        sizes = ", ".join(map(self._size, tensor.shape)) or "0"
        self.body += [
            f"const int64_t dims{place}[] = {{{sizes}}};",
            f"{c_type(tensor.dtype)} *{array} = plain_output(env, {place}, {tensor.rank}, dims{place});",
            f"if (!{array}) return env->code;",
            *("{", *indented(body), "}"),
        ]

    # tensors

    def array(self, tensor: Tensor) -> str:
        if tensor.uid not in self.arrays:
            if isinstance(tensor.definition, Result):
                names = self._call(tensor.definition.function)
                self.arrays[tensor.uid] = names[tensor.definition.place]
            else:
                name = f"t{next(self.numbers)}"
                lines = WRITERS[type(tensor.definition)](self, tensor, name)
                self.body += [*self._memory(name, c_type(tensor.dtype), tensor.shape), "{", *indented(lines), "}"]
                self.arrays[tensor.uid] = name
        return self.arrays[tensor.uid]

    def _memory(self, name: str, kind: str, shape: Sequence[Ix]) -> list[str]:
        sizes = ", ".join(map(self._size, shape)) or "1"
        made = f"plain_memory(env, sizeof({kind}), (int64_t[]){{{sizes}}}, {len(shape)})"
        return [f"{kind} *{name} = {made};", f"if (!{name}) return env->code;"]

    def _call(self, stated: Function) -> list[str]:
        """Run a function in C once; the names of its results."""
        if id(stated) not in self.called:
            place, function = len(self.called), callable_function(self.builder, stated)
            names = self.called[id(stated)] = [f"r{place}_{n}" for n in range(len(function.results))]
            operands = ["NULL" if t is None else self._contiguous(t) for t in function.operands]
            most: dict[Atom, Ix] = dict(function.found)
            for name, (shape, dtype) in zip(names, function.results, strict=True):
                self.body += self._memory(name, c_type(dtype), [substitute(size, most) for size in shape])
            self.body += self._memory(f"scratch{place}", "char", [function.scratch_bytes])
            self.body += self._call_lines(function, place, [*operands, *names, f"scratch{place}", f"found{place}"])
            self.functions[function.name] = function
            self.symbols |= {symbol: f"found{place}[{n}]" for n, (symbol, _) in enumerate(function.found)}
        return self.called[id(stated)]

    def _contiguous(self, tensor: Tensor) -> str:
        """The array of an operand, copied where it is a view."""
        if type(tensor.definition) in (*WRITERS, Result):
            return self.array(tensor)
        return self.array(self.builder.copy(tensor))

    def _call_lines(self, function: Function, place: int, pointers: Sequence[str]) -> list[str]:
        numbers = ", ".join(map(self._size, function.numbers)) or "0"
        factors = ", ".join(constant(factor, "f64") for factor in function.factors) or "0"
        return [
            f"int64_t found{place}[{len(function.found) or 1}];",
            f"void *b{place}[] = {{{', '.join(f'(void *){p}' for p in pointers)}}};",
            f"const int64_t s{place}[] = {{{numbers}}};",
            f"const double f{place}[] = {{{factors}}};",
            f"if (plain_call(env, SMELT_NAME({function.name}), b{place}, s{place}, f{place})) return env->code;",
        ]

    # inputs and sizes

    def input(self, buffer: Buffer) -> str:
        value = self.by_buffer[buffer.uid]
        return f"in{self.inputs.setdefault(value, len(self.inputs))}"

    def _data(self, value: ir.Value, place: int) -> str:
        kind = c_type(self.facts.by_value[value].dtype)
        return f"const {kind} *in{place} __attribute__((unused)) = env->in[{place}];"

    def _size(self, value: Ix) -> str:
        return Elements(self).ix(value)

    def _is_found(self, value: Ix) -> bool:
        return any(self.symbols.get(symbol, "").startswith("found") for symbol in value.syms)

    def symbol(self, symbol: Sym) -> str:
        if symbol not in self.symbols:
            text = self._from_shapes(symbol) if symbol.nonneg else self._from_data(symbol)
            name = self.symbols[symbol] = f"size{len(self.symbols)}"
            self.sizes.append(f"const int64_t {name} = {text};")
        return self.symbols[symbol]

    def _from_shapes(self, symbol: Sym) -> str:
        """From an axis of an input that is this size, or a number of them plus a rest that is known."""
        for value in dict.fromkeys((*self.region.inputs, *self.carriers)):
            if value in self.made_inside or value in self.facts.constants or value not in self.facts.by_value:
                continue
            for axis, size in enumerate(self.facts.by_value[value].shape):
                parts = coefficient(size, symbol)
                if parts is None or not parts[0].const or any(s not in self.symbols for s in parts[1].syms):
                    continue
                place = self.inputs.setdefault(value, len(self.inputs))
                return f"(env->in_dims[{place}][{axis}] - ({self._size(parts[1])})) / {parts[0].const}"
        raise Unsupported(f"the size {symbol.name!r} cannot be learned from the inputs")

    def _from_data(self, symbol: Sym) -> str:
        """From an element of an input: the symbol is called after its value and place."""
        name, _, rest = symbol.name.partition("[")
        for value, number in self.facts.ids.items():
            if f"v{number}" == name and value not in self.made_inside:
                place, element = self.inputs.setdefault(value, len(self.inputs)), int(rest.rstrip("]"))
                count = f"plain_count(env->in_dims[{place}], env->in_rank[{place}])"
                self.sizes.append(
                    f"if ({count} <= {element}) return smelt_fail(env, SMELT_E_SHAPE, {place}, -1, 0, 0);"
                )
                return f"in{place}[{element}]"
        raise Unsupported("a size depends on the contents of a tensor made inside the region")

    def _rank_check(self, value: ir.Value, place: int) -> str:
        rank, found = len(self.facts.by_value[value].shape), f"env->in_rank[{place}]"
        return f"if ({found} != {rank}) return smelt_fail(env, SMELT_E_RANK, {place}, {found}, {rank}, 0);"

    def _shape_checks(self, value: ir.Value, place: int) -> list[str]:
        lines: list[str] = []
        for axis, size in enumerate(self.facts.by_value[value].shape):
            if all(s in self.symbols for s in size.syms if not s.members):
                found, text = f"env->in_dims[{place}][{axis}]", self._size(size)
                failed = f"smelt_fail(env, SMELT_E_SHAPE, {place}, {axis}, {found}, {text})"
                lines.append(f"if ({found} != {text}) return {failed};")
        return lines
