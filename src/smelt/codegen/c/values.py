"""Expressions, indices and memory accesses of one nest as C.

Input: expressions over a nest's loop variables. Output: names of vectors, emitted into the scope they belong to.
Invariant: an expression is computed once per scope it is valid in, in the outermost loop it depends on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smelt.base.dtype import BY_NAME
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Expr, Ix, Reduce, Sym, Tensor, Val, Var, of
from smelt.ir.kernel import expr as E
from smelt.ir.kernel.index import Monomial, coefficient

from .exactness import exact, rounded
from .names import Integers, accumulator_name, constant
from .phases import Phases, plan_phases
from .scope import Scope
from .traits import STRIDED_LOADS, STRIDED_STORES

_BOOL_NAMES = {"min": "and", "max": "or", "mul": "and"}


class ValueWriter:
    """Emission state: scopes from the whole kernel down to the innermost loop, each with its names."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.buffers: dict[int, tuple[int, Buffer]] = {}
        self.symbols: dict[Sym, int] = {}
        self.scopes: list[Scope] = [Scope()]
        self.depth_of_var: dict[Var, int] = {}
        self.strided: set[str] = set()  # traits of the accesses that were written
        self.integers = Integers(self._symbol, self._var)
        self.var_names: dict[Var, str] = {}
        self.shift = ""
        self.paired = ""
        self.tail = False
        self.counter = 0
        self.results: dict[Tensor, str] = {}
        self.varying_memo: dict[int, bool] = {}
        self.depth_memo: dict[int, int] = {}
        self.phases: Phases = plan_phases(nest)
        roots = [*(s.value for s in nest.stores), *(r.value for r in nest.reductions)]
        self.exact = exact(roots)
        self.rounded = rounded(roots, self.exact)
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
        return f"({name}{self.shift})" if self.shift and var == self.nest.vector else name

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
            self.var_names[var] = "v" if var == nest.vector else f"n{place}"
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
        if self.nest.scan is not None or kind.tensor in self.nest.products:
            return max(self.depth_of_var.values(), default=0)
        return self.row_depth

    def _own_depth(self, node: Expr) -> int:
        return max((self.depth_of_var[v] for v in E.own_vars(node)), default=0)

    def _pending(self, root: Expr, memo: Mapping[int, object]) -> list[Expr]:
        return E.walk(root, known=memo)

    def _varying(self, root: Expr) -> bool:
        """Whether lanes differ: the expression depends on the vectorized variable."""
        for node in self._pending(root, self.varying_memo):
            kind = node.kind
            if isinstance(kind, E.Ref):
                own = self.nest.columns or kind.tensor in self.nest.products
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
        parts: dict[int, list[tuple[Monomial, int]]] = {}
        for term in value.terms:
            depth = min(self._ix_depth(Ix([term])), here)
            parts.setdefault(depth, []).append(term)
        texts: list[str] = []
        for depth in sorted(parts):
            part = Ix(parts[depth])
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
            read = f"lane0_i64({name})"
            found = f"smelt_index(t->env, {read}, {extent})" if atom.checked else read
            scope.lines.append(f"const int64_t {made} = {found};")
            scope.integers[atom.key] = made

    def _known_integer(self, key: str) -> bool:
        return any(key in scope.integers for scope in self.scopes)

    def _lane_offsets(self, value: Ix) -> str:
        """One offset per lane, for accesses that are not affine, in the scope that the offset belongs to."""
        scope = self.scopes[min(self._ix_depth(value), len(self.scopes) - 1)]
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

    def _checked_lanes(self, atom: Val) -> str:
        value = self._value(atom.expr)
        extent = self._integer(atom.extent)
        scope = self.scopes[min(self._ix_depth(of(atom)), len(self.scopes) - 1)]
        key = f"lanes:{atom.key}"
        if key not in scope.integers:
            name = scope.integers[key] = self._fresh("g")
            count = "n" if self.tail else "SMELT_L"
            scope.lines.append(f"int64_t {name}[SMELT_L]; st_i64({name}, {value});")
            if atom.checked:
                scope.lines.append(
                    f"for (int l = 0; l < {count}; l++) {name}[l] = smelt_index(t->env, {name}[l], {extent});"
                )
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
        if node.uid in self.phases.reload:
            return ()
        sides = self._one_side(node)
        if sides is None:
            return E.children(node)
        return (E.children(node)[0], *(e for side in sides for e in E.index_expressions(side.offset)))

    def _one_side(self, node: Expr) -> tuple[E.Load, E.Load] | None:
        """The two places that a select chooses from for all lanes at once: only the one that is asked for is read, so
        the other need not exist."""
        kind = node.kind
        if not isinstance(kind, E.Op) or kind.name != "sel" or self._varying(kind.args[0]):
            return None
        one, other = (side.kind for side in kind.args[1:])
        if not isinstance(one, E.Load) or not isinstance(other, E.Load):
            return None
        steps = [self._affine(s.offset) if self._ix_varying(s.offset) else None for s in (one, other)]
        return (one, other) if all(s is not None and s.const == 1 for s in steps) else None

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
        if node.uid in self.rounded and node.uid not in self.phases.reload:
            text = f"rounded_{node.dtype}({text})"
        name = self._fresh("e")
        scope.lines.append(f"const v_{node.dtype} {name} = {text};")
        scope.values[node.uid] = name

    def _text(self, node: Expr) -> str:
        kind = node.kind
        if node.uid in self.phases.reload:
            return self._load(node.dtype, *self.phases.reload[node.uid])
        if isinstance(kind, E.Const):
            return f"bc_{BY_NAME[node.dtype].compute}({constant(kind.value, node.dtype)})"
        if isinstance(kind, E.Load):
            return self._load(node.dtype, kind.buffer, kind.offset)
        if isinstance(kind, E.Index):
            return self._index_text(kind.ix, node.dtype)
        if isinstance(kind, E.Ref):
            return self._accumulator(kind)
        assert isinstance(kind, E.Op)
        return self._op_text(node, kind)

    def _op_text(self, node: Expr, kind: E.Op) -> str:
        sides = self._one_side(node)
        if sides is not None:
            places = [f"{self._buffer(side.buffer)} + {self._integer(side.offset)}" for side in sides]
            place = f"(hor_b({self._name_of(kind.args[0])}) ? {places[0]} : {places[1]})"
            return f"ld_{node.dtype}_n({place}, n)" if self.tail else f"ld_{node.dtype}({place})"
        args = [self._name_of(a) or "?" for a in kind.args]
        if kind.name == "rounded":
            return args[0]
        if kind.name == "cvt":
            return f"cvt_{kind.args[0].dtype}_{node.dtype}({args[0]})"
        if kind.name == "div" and node.dtype in E.FLOATS and node.uid not in self.exact:
            inverse = self._inverse(kind.args[1])
            if inverse is not None:
                return f"mul_{node.dtype}({args[0]}, {inverse})"
        if kind.name in ("min", "max") and node.dtype == "f32" and _is_number(kind.args[1]):
            # The second operand is what such an instruction gives for NaN, and the bound is none.
            return f"second_{kind.name}_f32({args[1]}, {args[0]})"
        if kind.name == "exp" and node.dtype == "f32" and _is_below_top(kind.args[0]):
            return f"exp_weight_f32({args[0]})"
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
        if (
            found is None
            or found.kind != "sum"
            or not isinstance(found.value.kind, E.Op)
            or found.value.kind.name != "exp"
        ):
            return False
        power = found.value.kind.args[0].kind
        if not isinstance(power, E.Op) or power.name != "sub" or not isinstance(power.args[1].kind, E.Ref):
            return False
        top = by_tensor.get(power.args[1].kind.tensor)
        return top is not None and top.kind in ("max", "top") and top.value is power.args[0]

    def _accumulator(self, kind: E.Ref) -> str:
        acc = accumulator_name(self.nest.products.index(kind.tensor))
        if self.tail:
            return f"ld_f32_n({acc} + v{self.shift} - c0, n)"
        return f"ld_f32({acc} + v{self.shift} - c0)"

    def _index_text(self, value: Ix, dtype: str) -> str:
        affine = coefficient(value, self.nest.vector) if self.nest.vector is not None else None
        data = any(self._varying(e) for e in E.index_expressions(value))
        if dtype == "i32" and affine is not None and affine[0].const == 1 and not data:
            # The low halves of a sum are the sum of the low halves.
            return f"add_i32(bc_i32((int32_t)({self._integer(value)})), cvt_i64_i32(iota_i64()))"
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
        self.strided.add(STRIDED_LOADS)
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
        self.strided.add(STRIDED_STORES)
        step = self._integer(affine)
        return f"sts_{dtype}{'_n' if tail else ''}({place}, {step}, {value}{', n' if tail else ''});"


def _is_number(node: Expr) -> bool:
    return isinstance(node.kind, E.Const) and node.kind.value == node.kind.value


def _atomic(text: str) -> bool:
    return text.isidentifier() or text.lstrip("-").isdigit()


def _is_below_top(value: Expr) -> bool:
    """What a softmax takes powers of: its scores less the largest of them."""
    kind = value.kind
    if not isinstance(kind, E.Op) or kind.name != "sub":
        return False
    top = kind.args[1]
    if isinstance(top.kind, E.Op) and top.kind.name == "sel":
        top = top.kind.args[2]
    definition = top.kind.tensor.definition if isinstance(top.kind, E.Ref) else None
    return isinstance(definition, Reduce) and definition.kind == "top"
