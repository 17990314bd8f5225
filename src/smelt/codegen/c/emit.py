"""A loop nest as C: one function over vec.h's vocabulary.

Input: a `Nest`. Output: a `Kernel`: its text, and the buffers and sizes it expects in `smelt_task`. Invariant: names
are generated; equal nests give equal text, so that kernels can be shared between regions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from smelt.ir.kernel import Buffer, Expr, Ix, MatMul, Stored, Sym, Tensor, Val, Var, expr as E, ix, of, product
from smelt.ir.kernel.index import coefficient

from ..loops import Nest
from ..schedule import Reduction, Store
from .names import C_TYPE, constant, Integers
from .phases import Phases, plan_phases
from .scope import Scope

UNROLL = 4
CHUNK_COST = 6000


@dataclass(frozen=True)
class Kernel:
    """`units` and `unit_cost` are size expressions; `row_bytes` is the row buffer that one task needs."""

    name: str
    text: str
    buffers: tuple[Buffer, ...]
    symbols: tuple[Sym, ...]
    units: Ix
    chunked: tuple[Ix, int] | None
    unit_cost: Ix
    row_bytes: Ix
    matmul: MatMul | None
    flops: Ix
    moved_bytes: Ix
    data_extents: tuple[Ix, ...]
    whole_rows: bool


def write_kernel(nest: Nest) -> Kernel:
    return _Writer(nest).kernel()


class _Writer:
    """Emission state: scopes from the whole kernel down to the innermost loop; names live in the scope they belong to."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.buffers: dict[int, tuple[int, Buffer]] = {}
        self.symbols: dict[Sym, int] = {}
        self.scopes: list[Scope] = [Scope()]
        self.depth_of_var: dict[Var, int] = {}
        self.integers = Integers(self._symbol, self._var)
        self.var_names: dict[Var, str] = {}
        self.shift = ""
        self.tail = False
        self.counter = 0
        self.results: dict[Tensor, str] = {}
        self.varying_memo: dict[int, bool] = {}
        self.depth_memo: dict[int, int] = {}
        self.phases: Phases = plan_phases(nest)
        self.row_names = {b.uid: f"w{place}" for place, b in enumerate(self.phases.row_buffers)}
        self.written = frozenset(s.buffer.uid for s in nest.stores)
        self._assign_depths()

    # names

    def _fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def _symbol(self, symbol: Sym) -> str:
        return f"s{self.symbols.setdefault(symbol, len(self.symbols))}"

    def _var(self, var: Var) -> str:
        name = self.var_names[var]
        return f"({name}{self.shift})" if self.shift and var is self.nest.vector else name

    def _buffer(self, buffer: Buffer) -> str:
        if buffer.uid in self.row_names:
            return self.row_names[buffer.uid]
        place, _ = self.buffers.setdefault(buffer.uid, (len(self.buffers), buffer))
        return f"b{place}"

    def _assign_depths(self) -> None:
        """0: the kernel; 1: parallel loops; then the vectorized parallel loop, or the inner loops one by one."""
        nest = self.nest
        for place, var in enumerate(nest.outer):
            self.var_names[var] = f"o{place}"
            self.depth_of_var[var] = 1
        depth = 2
        if nest.columns and nest.vector is not None:
            self.depth_of_var[nest.vector] = depth
            self.var_names[nest.vector] = "v"
            depth += 1
        for place, var in enumerate(nest.inner):
            self.var_names[var] = "v" if var is nest.vector else f"n{place}"
            self.depth_of_var[var] = depth + place
        self.row_depth = 2 if nest.columns else 1

    # properties of expressions

    def _ix_depth(self, value: Ix) -> int:
        depth = 0
        for atom in value.atoms:
            if isinstance(atom, Var):
                depth = max(depth, self.depth_of_var[atom])
        for inner in E.index_expressions(value):
            depth = max(depth, self._depth(inner))
        return depth

    def _depth(self, root: Expr) -> int:
        for node in self._pending(root, self.depth_memo):
            kind = node.kind
            if isinstance(kind, E.Ref):
                depth = self._ref_depth(kind)
            else:
                depth = max((self._own_depth(node), *(self.depth_memo[c.uid] for c in E.children(node))))
            self.depth_memo[node.uid] = depth
        return self.depth_memo[root.uid]

    def _ref_depth(self, kind: E.Ref) -> int:
        if self.nest.scan is not None or kind.tensor is self.nest.matmul:
            return max(self.depth_of_var.values(), default=0)
        return self.row_depth

    def _own_depth(self, node: Expr) -> int:
        return max((self.depth_of_var[v] for v in E.own_vars(node)), default=0)

    def _pending(self, root: Expr, memo: dict[int, object] | dict[int, int] | dict[int, bool]) -> list[Expr]:
        return [e for e in E.walk(root) if e.uid not in memo] if root.uid not in memo else []

    def _varying(self, root: Expr) -> bool:
        """Whether lanes differ: the expression depends on the vectorized variable."""
        for node in self._pending(root, self.varying_memo):
            kind = node.kind
            if isinstance(kind, E.Ref):
                own = self.nest.columns or kind.tensor is self.nest.matmul
            else:
                own = self.nest.vector in E.own_vars(node)
            self.varying_memo[node.uid] = own or any(self.varying_memo[c.uid] for c in E.children(node))
        return self.varying_memo[root.uid]

    def _ix_varying(self, value: Ix) -> bool:
        if self.nest.vector is not None and self.nest.vector in value.atoms:
            return True
        return any(self._varying(e) for e in E.index_expressions(value))

    # integers

    def _integer(self, value: Ix) -> str:
        """A size or index expression as C; parts that belong to an outer scope are computed there once."""
        here = len(self.scopes) - 1
        parts: dict[int, list[tuple[object, int]]] = {}
        for term in value.terms:
            depth = min(self._ix_depth(Ix([term])), here)
            parts.setdefault(depth, []).append(term)  # type: ignore[arg-type]
        texts: list[str] = []
        for depth in sorted(parts):
            part = Ix(parts[depth])  # type: ignore[arg-type]
            self._data_indices(part)
            text = self.integers.text(part, self.scopes)
            texts.append(text if depth >= here or _atomic(text) else self._named_integer(part, text, depth))
        return " + ".join(texts) or "0"

    def _named_integer(self, part: Ix, text: str, depth: int) -> str:
        scope = self.scopes[depth]
        if part.key not in scope.integers:
            scope.integers[part.key] = self._fresh("q")
            scope.lines.append(f"const int64_t {scope.integers[part.key]} = {text};")
        return scope.integers[part.key]

    def _data_indices(self, value: Ix) -> None:
        """Indices read from data that do not differ between lanes become checked scalars."""
        for atom in sorted(value.atoms, key=lambda a: a.key):
            if not isinstance(atom, Val) or self._varying(atom.expr) or self._known_integer(atom.key):
                continue
            name = self._value(atom.expr)
            depth = min(self._depth(atom.expr), len(self.scopes) - 1)
            extent = self._integer(atom.extent)
            made = self._fresh("g")
            scope = self.scopes[depth]
            scope.lines.append(f"const int64_t {made} = smelt_index(t->env, lane0_i64({name}), {extent});")
            scope.integers[atom.key] = made

    def _known_integer(self, key: str) -> bool:
        return any(key in scope.integers for scope in self.scopes)

    def _lane_offsets(self, value: Ix) -> str:
        """An array of one offset per lane, for accesses that are not affine."""
        scope = self.scopes[-1]
        lanes: dict[str, str] = {}
        for atom in sorted(value.atoms, key=lambda a: a.key):
            if isinstance(atom, Val) and self._varying(atom.expr):
                lanes[atom.key] = self._checked_lanes(atom)
            elif isinstance(atom, Val):
                self._data_indices(of(atom))
        name = self._fresh("x")
        old, self.shift = self.shift, f"{self.shift} + l"
        text = self.integers.text(value, self.scopes, lanes)
        self.shift = old
        scope.lines.append(f"int64_t {name}[SMELT_L];")
        scope.lines.append(f"for (int l = 0; l < SMELT_L; l++) {name}[l] = {text};")
        return name

    def _checked_lanes(self, atom: object) -> str:
        assert isinstance(atom, Val)
        value = self._value(atom.expr)
        extent = self._integer(atom.extent)
        scope = self.scopes[-1]
        key = f"lanes:{atom.key}"
        if key not in scope.integers:
            name = scope.integers[key] = self._fresh("g")
            count = "n" if self.tail else "SMELT_L"
            scope.lines.append(f"int64_t {name}[SMELT_L]; st_i64({name}, {value});")
            scope.lines.append(f"for (int l = 0; l < {count}; l++) {name}[l] = smelt_index(t->env, {name}[l], {extent});")
        return f"{scope.integers[key]}[l]"

    # values

    def _value(self, root: Expr) -> str:
        """The name of an expression's vector, emitting what is missing. Iterative, operands first."""
        stack = [root]
        while stack:
            node = stack[-1]
            if self._name_of(node) is not None:
                stack.pop()
                continue
            waiting = [c for c in self._operands(node) if self._name_of(c) is None]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            self._emit(node)
            stack.pop()
        name = self._name_of(root)
        assert name is not None
        return name

    def _operands(self, node: Expr) -> Sequence[Expr]:
        return () if node.uid in self.phases.reload else E.children(node)

    def _name_of(self, node: Expr) -> str | None:
        kind = node.kind
        if isinstance(kind, E.Ref) and kind.tensor in self.results:
            return self.results[kind.tensor]
        for scope in reversed(self.scopes):
            if node.uid in scope.values:
                return scope.values[node.uid]
        return None

    def _emit(self, node: Expr) -> None:
        depth = min(self._depth(node), len(self.scopes) - 1)
        scope = self.scopes[depth]
        text = self._text(node)
        name = self._fresh("e")
        scope.lines.append(f"const v_{node.dtype} {name} = {text};")
        scope.values[node.uid] = name

    def _text(self, node: Expr) -> str:
        kind = node.kind
        if node.uid in self.phases.reload:
            return self._load(node.dtype, *self.phases.reload[node.uid])
        if isinstance(kind, E.Const):
            return f"bc_{node.dtype}({constant(kind.value, node.dtype)})"
        if isinstance(kind, E.Load):
            return self._load(node.dtype, kind.buffer, kind.offset)
        if isinstance(kind, E.Index):
            return self._index_text(kind.ix, node.dtype)
        if isinstance(kind, E.Ref):
            return self._accumulator(kind)
        assert isinstance(kind, E.Op)
        return self._op_text(node, kind)

    def _op_text(self, node: Expr, kind: E.Op) -> str:
        args = [self._name_of(a) or "?" for a in kind.args]
        if kind.name == "cvt":
            return f"cvt_{kind.args[0].dtype}_{node.dtype}({args[0]})"
        if kind.name == "div" and node.dtype in E.FLOATS:
            inverse = self._inverse(kind.args[1])
            if inverse is not None:
                return f"mul_{node.dtype}({args[0]}, {inverse})"
        suffix = node.dtype if kind.name == "sel" else kind.args[0].dtype
        name = _BOOL_NAMES.get(kind.name, kind.name) if suffix == "b" else kind.name
        return f"{name}_{suffix}({', '.join(args)})"

    def _inverse(self, divisor: Expr) -> str | None:
        """A factor to multiply by instead of dividing, where that is within one rounding for every dividend: an
        ordinary constant, or a softmax's sum, which lies between 1 and the row's length."""
        kind = divisor.kind
        if isinstance(kind, E.Const) and 1e-30 < abs(kind.value) < 1e30:
            return f"bc_{divisor.dtype}({constant(1.0 / kind.value, divisor.dtype)})"
        if isinstance(kind, E.Ref) and self._is_softmax_sum(kind.tensor) and not self._varying(divisor):
            return self._value(E.op("recip", divisor))
        return None

    def _is_softmax_sum(self, tensor: Tensor) -> bool:
        by_tensor = {r.tensor: r for r in self.nest.reductions}
        found = by_tensor.get(tensor)
        if found is None or found.kind != "sum" or not isinstance(found.value.kind, E.Op) or found.value.kind.name != "exp":
            return False
        power = found.value.kind.args[0].kind
        if not isinstance(power, E.Op) or power.name != "sub" or not isinstance(power.args[1].kind, E.Ref):
            return False
        top = by_tensor.get(power.args[1].kind.tensor)
        return top is not None and top.kind == "max" and top.value is power.args[0]

    def _accumulator(self, kind: E.Ref) -> str:
        assert kind.tensor is self.nest.matmul
        if self.tail:
            return f"ld_f32_n(acc + v{self.shift} - c0, n)"
        return f"ld_f32(acc + v{self.shift} - c0)"

    def _index_text(self, value: Ix, dtype: str) -> str:
        made = self._index_lanes(value)
        return made if dtype == "i64" else f"cvt_i64_{dtype}({made})"

    def _index_lanes(self, value: Ix) -> str:
        vector = self.nest.vector
        if not self._ix_varying(value):
            return f"bc_i64({self._integer(value)})"
        affine = coefficient(value, vector) if vector is not None else None
        if affine is None or any(self._varying(e) for e in E.index_expressions(value)):
            return f"ld_i64({self._lane_offsets(value)})"
        slope = self._integer(affine[0])
        base = self._integer(value)
        return f"add_i64(bc_i64({base}), mul_i64(iota_i64(), bc_i64({slope})))"

    def _load(self, dtype: str, buffer: Buffer, offset: Ix) -> str:
        base, tail = self._buffer(buffer), self.tail
        if not self._ix_varying(offset):
            return f"bc_{dtype}({base}[{self._integer(offset)}])"
        affine = self._affine(offset)
        if affine is None:
            lanes = f"ld_i64({self._lane_offsets(offset)})"
            return f"ldg_{dtype}_n({base}, {lanes}, n)" if tail else f"ldg_{dtype}({base}, {lanes})"
        place = f"{base} + {self._integer(offset)}"
        if affine == 1:
            return f"ld_{dtype}_n({place}, n)" if tail else f"ld_{dtype}({place})"
        step = self._integer(affine)
        return f"lds_{dtype}_n({place}, {step}, n)" if tail else f"lds_{dtype}({place}, {step})"

    def _affine(self, offset: Ix) -> Ix | None:
        """The step between lanes, or None when the access has no constant step."""
        vector = self.nest.vector
        assert vector is not None
        if any(self._varying(e) for e in E.index_expressions(offset)):
            return None
        parts = coefficient(offset, vector)
        return None if parts is None else parts[0]

    def _store(self, buffer: Buffer, offset: Ix, value: str, dtype: str) -> str:
        base, tail = self._buffer(buffer), self.tail
        if not self._ix_varying(offset):
            return f"st1_{dtype}({base} + {self._integer(offset)}, {value});"
        affine = self._affine(offset)
        if affine is None:
            lanes = f"ld_i64({self._lane_offsets(offset)})"
            return f"stg_{dtype}{'_n' if tail else ''}({base}, {lanes}, {value}{', n' if tail else ''});"
        place = f"{base} + {self._integer(offset)}"
        if affine == 1:
            return f"st_{dtype}_n({place}, {value}, n);" if tail else f"st_{dtype}({place}, {value});"
        step = self._integer(affine)
        return f"sts_{dtype}{'_n' if tail else ''}({place}, {step}, {value}{', n' if tail else ''});"

    # statements

    def _emit_store(self, store: Store) -> None:
        value = self._value(store.value)
        line = self._store(store.buffer, store.offset, value, store.value.dtype)
        self.scopes[-1].lines.append(line)

    def _body(self, phase: int, copy: int) -> None:
        """What happens at one point of the inner loops."""
        hidden = {uid: self.phases.reload.pop(uid) for uid in self.phases.made[phase] if uid in self.phases.reload}
        for node, buffer, offset in self.phases.saves[phase]:
            value = self._value(node)
            self.scopes[-1].lines.append(self._store(buffer, offset, value, node.dtype))
        for store in self.phases.stores[phase]:
            self._emit_store(store)
        for place, reduction in enumerate(self.phases.reductions[phase]):
            self._accumulate(reduction, f"a{phase}_{place}_{copy}")
        self.phases.reload.update(hidden)

    def _accumulate(self, reduction: Reduction, name: str) -> None:
        value = self._value(reduction.value)
        dtype = reduction.value.dtype
        lines = self.scopes[-1].lines
        masked = self.tail and not self.nest.columns
        if reduction.kind.startswith("arg"):
            assert reduction.position is not None
            position = self._value(reduction.position)
            better = f"smelt_{reduction.kind}_{dtype}({value}, {name}, {name}_at)"
            mask = self._fresh("m")
            lines.append(f"const v_b {mask} = {f'and_b({better}, tail_mask(n))' if masked else better};")
            lines.append(f"{name} = sel_{dtype}({mask}, {value}, {name});")
            lines.append(f"{name}_at = sel_i64({mask}, {position}, {name}_at);")
            return
        combine = combine_name(reduction.kind, dtype)
        text = f"{combine}({name}, {value})"
        lines.append(f"{name} = {f'sel_{dtype}(tail_mask(n), {text}, {name})' if masked else text};")

    def _open(self) -> None:
        self.scopes.append(Scope())

    def _close(self, head: str, tail: str = "}") -> None:
        scope = self.scopes.pop()
        self.scopes[-1].lines += [head, *("  " + line for line in scope.lines), tail]

    def _phase(self, phase: int) -> None:
        """Accumulators, loops, results."""
        lines = self.scopes[-1].lines
        copies = self._copies(phase)
        for place, reduction in enumerate(self.phases.reductions[phase]):
            for copy in range(copies):
                lines += declare_accumulator(reduction, f"a{phase}_{place}_{copy}")
        loops = [v for v in self.nest.inner if v is not self.nest.vector]
        for var in loops:
            self._open_loop(var)
        if self.nest.vector is None or self.nest.columns:
            self._body(phase, 0)
        else:
            self._vector_loops(phase, copies)
        for var in reversed(loops):
            name = self.var_names[var]
            self._close(f"for (int64_t {name} = 0; {name} < {self.extent_names[var]}; {name}++) {{")
        for place, reduction in enumerate(self.phases.reductions[phase]):
            self._finish(reduction, f"a{phase}_{place}", copies)

    def _open_loop(self, var: Var) -> None:
        self.extent_names[var] = self._integer(var.extent)
        self._open()

    def _copies(self, phase: int) -> int:
        """Independent accumulators hide the latency of short reductions."""
        if self.nest.vector is None or self.nest.columns or not self.phases.reductions[phase]:
            return 1
        if any(r.kind.startswith("arg") for r in self.phases.reductions[phase]):
            return 1
        return UNROLL if self.phases.cost[phase] <= 14 else 1

    def _vector_loops(self, phase: int, copies: int) -> None:
        """Whole vectors, several at a time where that hides latency, then the tail. Collected apart: what belongs to
        the row is appended to the row's own lines meanwhile."""
        assert self.nest.vector is not None
        stop = self._integer(self.nest.vector.extent)
        block = ["{", "int64_t v = 0;"]
        if copies > 1:
            block.append(f"for (; v + {copies} * SMELT_L <= {stop}; v += {copies} * SMELT_L) {{")
            for copy in range(copies):
                self.shift = f" + {copy} * SMELT_L" if copy else ""
                block += self._collected(phase, copy, "{", "}")
            self.shift = ""
            block.append("}")
        block += self._collected(phase, 0, f"for (; v + SMELT_L <= {stop}; v += SMELT_L) {{", "}")
        self.tail = True
        block += self._collected(phase, 0, f"if (v < {stop}) {{ const int64_t n = {stop} - v;", "}")
        self.tail = False
        self.scopes[-1].lines += [*block, "}"]

    def _collected(self, phase: int, copy: int, head: str, tail: str) -> list[str]:
        self._open()
        self._body(phase, copy)
        scope = self.scopes.pop()
        return [head, *("  " + line for line in scope.lines), tail]

    def _finish(self, reduction: Reduction, name: str, copies: int) -> None:
        lines = self.scopes[-1].lines
        dtype = reduction.value.dtype
        combine = combine_name(reduction.kind, dtype)
        if reduction.kind.startswith("arg"):
            across = f"bc_i64(smelt_h{reduction.kind}_{dtype}({name}_0, {name}_0_at))"
            result = f"{name}_0_at" if self.nest.columns or self.nest.vector is None else across
            out = "i64"
        else:
            for copy in range(1, copies):
                lines.append(f"{name}_0 = {combine}({name}_0, {name}_{copy});")
            whole = self.nest.columns or self.nest.vector is None
            result = f"{name}_0" if whole else f"bc_{dtype}({horizontal_name(reduction.kind, dtype)}({name}_0))"
            out = dtype
        made = self._fresh("r")
        lines.append(f"const v_{out} {made} = {result};")
        self.results[reduction.tensor] = made

    # the kernel

    def _row(self) -> None:
        """Everything of one unit, in the current scope: phases, then stores that belong to the row itself."""
        kept = dict(self.results)
        self.extent_names: dict[Var, str] = {}
        if self.nest.scan is not None:
            self._scan()
        else:
            for phase in range(self.phases.count):
                self._phase(phase)
            for store in self.phases.row_stores:
                self._emit_store(store)
        self.results = kept

    def _scan(self) -> None:
        """A running total along the one inner loop."""
        scan, reduction = self.nest.scan, self.nest.reductions[0]
        assert scan is not None
        dtype = reduction.value.dtype
        combine = combine_name(scan.kind, dtype)
        lines = self.scopes[-1].lines
        lines.append(f"v_{dtype} run = bc_{dtype}({identity(scan.kind, dtype)});")
        if not self.nest.inner:
            self._scan_step(scan.exclusive, combine, reduction)
            return
        axis = self.nest.inner[0]
        name, extent = self.var_names[axis], self._integer(axis.extent)
        self._open()
        self._scan_step(scan.exclusive, combine, reduction)
        down = f"for (int64_t {name} = {extent} - 1; {name} >= 0; {name}--) {{"
        self._close(down if scan.reverse else f"for (int64_t {name} = 0; {name} < {extent}; {name}++) {{")

    def _scan_step(self, exclusive: bool, combine: str, reduction: Reduction) -> None:
        value = self._value(reduction.value)
        lines = self.scopes[-1].lines
        dtype = reduction.value.dtype
        kept = self._fresh("w")
        if exclusive:
            lines.append(f"const v_{dtype} {kept} = run;")
        lines.append(f"run = {combine}(run, {value});")
        if not exclusive:
            lines.append(f"const v_{dtype} {kept} = run;")
        self.results[reduction.tensor] = kept
        for store in self.nest.stores:
            self._emit_store(store)

    def kernel(self) -> Kernel:
        body = self._matmul_body() if self.nest.matmul is not None else self._units_body()
        cost = self._unit_cost()
        arguments = [
            f"{'' if b.uid in self.written else 'const '}{C_TYPE[b.dtype]} *{'restrict ' if b.uid not in self.written else ''}"
            f"b{place} = t->b[{place}];"
            for place, b in self.buffers.values()
        ]
        arguments += [f"const int64_t s{place} = t->s[{place}];" for place in self.symbols.values()]
        text = "\n".join(["  " + line for line in arguments + body])
        name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        whole = (
            f"static void SMELT_NAME({name})(void *p, int64_t task) {{\n  const smelt_task *t = p;\n"
            f"{text}\n}}\n"
        )
        return Kernel(
            name, whole, tuple(b for _, b in self.buffers.values()), tuple(self.symbols), self._units(),
            self._chunks(), cost, self._row_bytes(), self._matmul_definition(), self._flops(), self._moved(), self._data_extents(), bool(self.nest.inner),
        )  # fmt: skip

    def _matmul_definition(self) -> MatMul | None:
        definition = self.nest.matmul.definition if self.nest.matmul is not None else None
        return definition if isinstance(definition, MatMul) else None

    def _rows(self) -> list[Var]:
        return [v for v in self.nest.outer if v is not self.nest.vector]

    def _units(self) -> Ix:
        return product(v.extent for v in self._rows())

    def _chunk(self) -> int:
        """Elements of the vectorized loop that one unit takes."""
        cost = max(1, sum(self.phases.cost) or 1)
        return max(256, (CHUNK_COST // cost) // 64 * 64)

    def _chunks(self) -> tuple[Ix, int] | None:
        if not self.nest.columns or self.nest.vector is None or self.nest.matmul is not None:
            return None
        return self.nest.vector.extent, self._chunk()

    def _inner_elements(self) -> Ix:
        return product(v.extent for v in self.nest.inner)

    def _unit_cost(self) -> Ix:
        per_point = ix(max(1, sum(self.phases.cost) // 2))
        if self.nest.columns:
            return per_point * self._inner_elements()
        return per_point * self._inner_elements() + 4

    def _data_extents(self) -> tuple[Ix, ...]:
        """Sizes of axes that are indexed by data."""
        roots = [s.value for s in self.nest.stores] + [r.value for r in self.nest.reductions]
        found: dict[Ix, None] = {}
        for node in E.walk(*roots):
            value = node.kind.offset if isinstance(node.kind, E.Load) else None
            for atom in value.atoms if value is not None else ():
                if isinstance(atom, Val):
                    found[atom.extent] = None
        return tuple(found)

    def _flops(self) -> Ix:
        points = product(v.extent for v in (*self.nest.outer, *self.nest.inner))
        return points * sum(self.phases.cost)

    def _moved(self) -> Ix:
        read: dict[tuple[int, str], Ix] = {}
        for node in E.walk(*(s.value for s in self.nest.stores), *(r.value for r in self.nest.reductions)):
            if isinstance(node.kind, E.Load):
                used = product(v.extent for v in node.kind.offset.vars)
                read[(node.kind.buffer.uid, node.kind.offset.key)] = used * E.SIZE_BYTES[node.dtype]
        total = ix(0)
        for size in read.values():
            total = total + size
        for store in self.nest.stores:
            total = total + product(v.extent for v in store.offset.vars) * E.SIZE_BYTES[store.value.dtype]
        return total

    def _row_bytes(self) -> Ix:
        total = ix(0)
        for buffer in self.phases.row_buffers:
            total = total + (buffer.elements * E.SIZE_BYTES[buffer.dtype] + 64)
        return total

    def _units_body(self) -> list[str]:
        """Cut out this task's units; walk them with a counter per parallel loop."""
        scope = self.scopes[0]
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        chunks = self._chunks()
        head = ["int64_t u = task * t->step;", "const int64_t stop = smelt_min(u + t->step, t->units);"]
        if chunks is not None:
            head.append(f"const int64_t wide = {self._integer(chunks[0])};")
            head.append(f"const int64_t parts = (wide + {chunks[1]} - 1) / {chunks[1]};")
        head += self._row_pointers()
        self._open()
        if chunks is not None:
            self._columns(chunks[1])
        else:
            self._row()
        unit = self.scopes.pop()
        decode = self._decode(rows, extents, chunks is not None)
        step = self._advance(rows, extents, chunks is not None)
        return [*scope.lines, *head, *decode, "for (; u < stop; u++) {", *("  " + x for x in unit.lines + step), "}"]

    def _row_pointers(self) -> list[str]:
        """Row buffers on the stack when they are small, else this task's slot."""
        if not self.phases.row_buffers:
            return []
        lines = [
            "char *row = t->rows ? t->rows + task * t->row_bytes : __builtin_alloca_with_align((size_t)t->row_bytes, 512);"
        ]
        for place, buffer in enumerate(self.phases.row_buffers):
            name = self._buffer(buffer)
            kind = C_TYPE[buffer.dtype]
            lines.append(f"{kind} *{name} = ({kind} *)row;")
            if place + 1 < len(self.phases.row_buffers):
                size = self._integer(buffer.elements)
                lines.append(f"row += (({size}) * {E.SIZE_BYTES[buffer.dtype]} + 63) & ~(int64_t)63;")
        return lines

    def _columns(self, chunk: int) -> None:
        lines = self.scopes[-1].lines
        where = "part" if self._rows() else "u"
        lines.append(f"int64_t v = {where} * {chunk};")
        lines.append(f"const int64_t last = smelt_min(v + {chunk}, wide);")
        self._open()
        self._row()
        self._close("for (; v + SMELT_L <= last; v += SMELT_L) {")
        self.tail = True
        self._open()
        self.scopes[-1].lines.append("const int64_t n = last - v;")
        self._row()
        self._close("if (v < last) {")
        self.tail = False

    def _decode(self, rows: Sequence[Var], extents: Sequence[str], parted: bool) -> list[str]:
        if not rows:
            return []
        lines = ["int64_t rest = u;"]
        if parted:
            lines += ["int64_t part = parts ? rest % parts : 0;", "rest = parts ? rest / parts : 0;"]
        for place in range(len(rows) - 1, 0, -1):
            name = self.var_names[rows[place]]
            lines.append(f"int64_t {name} = rest % ({extents[place]}); rest /= ({extents[place]});")
        lines.append(f"int64_t {self.var_names[rows[0]]} = rest;")
        return lines

    def _advance(self, rows: Sequence[Var], extents: Sequence[str], parted: bool) -> list[str]:
        if not rows:
            return []
        lines = ["if (++part < parts) continue;", "part = 0;"] if parted else []
        for place in range(len(rows) - 1, 0, -1):
            name = self.var_names[rows[place]]
            lines += [f"if (++{name} < {extents[place]}) continue;", f"{name} = 0;"]
        lines.append(f"++{self.var_names[rows[0]]};")
        return lines

    def _matmul_body(self) -> list[str]:
        """A block of rows: the product into a local block, then the epilogue row by row."""
        nest = self.nest
        assert nest.matmul is not None and nest.lhs is not None and isinstance(nest.matmul.definition, MatMul)
        a, b = self._buffer(nest.lhs), self._buffer(_buffer_of(nest.matmul.definition.b))
        depth = self._integer(nest.matmul.definition.a.shape[-1])
        columns = self._integer(nest.matmul.shape[-1])
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        head = [
            "const int64_t first = (task % t->units) * t->step;",
            f"const int64_t count = smelt_min(t->step, ({' * '.join(f'({e})' for e in extents) or '1'}) - first);",
            f"const int64_t width = t->row_bytes, p0 = task / t->units * width;",
            f"const int64_t p1 = smelt_min(p0 + width, (({columns}) + 15) / 16);",
            f"const int64_t c0 = p0 * 16, c1 = smelt_min(p1 * 16, {columns}), ld = (p1 - p0) * 16;",
            "float *block = (float *)(t->rows + task * ((t->step * width * 16 * 4 + 63) & ~(int64_t)63));",
            f"SMELT_PRODUCT({a} + first * ({depth}), {depth}, {b}, {depth}, block, ld, count, p0, p1, p1 * 16);",
            "int64_t u = first;",
            "const int64_t stop = first + count;",
        ]
        self._open()
        self.scopes[-1].lines.append("const float *acc = block + (u - first) * ld;")
        if nest.columns:
            self._matmul_columns()
        else:
            self.scopes[-1].lines.append("(void)c1;")
            self._row()
        unit = self.scopes.pop()
        decode = self._decode(rows, extents, False)
        step = self._advance(rows, extents, False)
        return [*self.scopes[0].lines, *head, *self._row_pointers_stack(), *decode,
                "for (; u < stop; u++) {", *("  " + x for x in unit.lines + step), "}"]  # fmt: skip

    def _row_pointers_stack(self) -> list[str]:
        lines: list[str] = []
        for buffer in self.phases.row_buffers:
            name, size = self._buffer(buffer), self._integer(buffer.elements)
            kind = C_TYPE[buffer.dtype]
            lines.append(f"{kind} *{name} = __builtin_alloca_with_align((size_t)({size}) * {E.SIZE_BYTES[buffer.dtype]}, 512);")
        return lines

    def _matmul_columns(self) -> None:
        lines = self.scopes[-1].lines
        lines.append("int64_t v = c0;")
        self._open()
        self._row()
        self._close("for (; v + SMELT_L <= c1; v += SMELT_L) {")
        self.tail = True
        self._open()
        self.scopes[-1].lines.append("const int64_t n = c1 - v;")
        self._row()
        self._close("if (v < c1) {")
        self.tail = False


_BOOL_NAMES = {"min": "and", "max": "or", "mul": "and"}
_COMBINE = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}


def combine_name(kind: str, dtype: str) -> str:
    if kind.startswith("arg"):
        return ""
    if dtype == "b":
        return "and_b" if kind in ("min", "prod") else "or_b"
    return f"{_COMBINE[kind]}_{dtype}"


def horizontal_name(kind: str, dtype: str) -> str:
    if dtype == "b":
        return "hand_b" if kind in ("min", "prod") else "hor_b"
    return f"h{kind}_{dtype}"


def identity(kind: str, dtype: str) -> str:
    """The element that leaves the other operand unchanged."""
    if dtype == "b":
        return "1" if kind in ("min", "prod") else "0"
    if kind in ("sum", "prod"):
        return constant(0 if kind == "sum" else 1, dtype)
    low = kind.endswith("max") or kind.endswith("max_last")
    if dtype in E.FLOATS:
        return constant(float("-inf") if low else float("inf"), dtype)
    bits = E.SIZE_BYTES[dtype] * 8
    if dtype in E.UNSIGNED:
        return constant(0 if low else 2**bits - 1, dtype)
    return constant(-(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1, dtype)


def declare_accumulator(reduction: Reduction, name: str) -> list[str]:
    dtype = reduction.value.dtype
    lines = [f"v_{dtype} {name} = bc_{dtype}({identity(reduction.kind, dtype)});"]
    if reduction.kind.startswith("arg"):
        lines.append(f"v_i64 {name}_at = bc_i64(-1);")
    return lines


def _buffer_of(tensor: Tensor) -> Buffer:
    assert isinstance(tensor.definition, Stored)
    return tensor.definition.buffer


def _atomic(text: str) -> bool:
    return text.isidentifier() or text.lstrip("-").isdigit()
