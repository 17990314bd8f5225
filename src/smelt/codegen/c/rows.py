"""One row of a nest as C: passes over its inner loops, then what belongs to the row itself.

Input: the phases of a nest. Output: lines in the current scope. Invariant: whole vectors first, then a tail that
touches only valid lanes; accumulators take no part of a lane beyond the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from smelt.codegen.cluster import Reduction, Store
from smelt.ir.kernel import Var
from smelt.ir.kernel import expr as E

from .reductions import combine_name, declare_accumulator, horizontal_name, identity
from .scope import Scope
from .values import ValueWriter

PART_ROWS = 16  # rows of one chain of additions
FOUR_AT_ONCE = 32
TWO_AT_ONCE = 200


class RowWriter(ValueWriter):
    """Adds statements to the values of a nest."""

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
            self._accumulate(reduction, f"{self._total(phase, place)}_{copy}")
        self._body_end(phase)
        self.phases.reload.update(hidden)

    def _body_end(self, phase: int) -> None:
        """What must come after everything else that reads the product's block at this point."""

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
                lines += declare_accumulator(reduction, f"{self._total(phase, place)}_{copy}")
        lines += [f"v_f32 {name}_all = bc_f32(0.0f);" for name in self._parted_sums(phase)]
        loops = [v for v in self.nest.inner if v != self.nest.vector]
        for var in loops:
            self._open_loop(var)
        if self.nest.vector is None or self.nest.columns:
            self._body(phase, 0)
            self._part_sums(phase)
        else:
            self._vector_loops(phase, copies)
        for var in reversed(loops):
            name = self.var_names[var]
            self._close(f"for (int64_t {name} = 0; {name} < {self.extent_names[var]}; {name}++) {{")
        lines += [f"{name} = add_f32({name}_all, {name});" for name in self._parted_sums(phase)]
        for place, reduction in enumerate(self.phases.reductions[phase]):
            self._complete(reduction, self._total(phase, place), copies)

    def _parted_sums(self, phase: int) -> list[str]:
        """Accumulators of sums down the columns. One chain of additions would gather the roundings of all rows: it ends
        every few rows, and the parts are added."""
        if not self.nest.columns or all(v == self.nest.vector for v in self.nest.inner):
            return []
        sums = enumerate(self.phases.reductions[phase])
        return [f"{self._total(phase, at)}_0" for at, r in sums if r.kind == "sum" and r.value.dtype == "f32"]

    def _part_sums(self, phase: int) -> None:
        names = self._parted_sums(phase)
        if names:
            row = self.var_names[[v for v in self.nest.inner if v != self.nest.vector][-1]]
            ends = [f"{n}_all = add_f32({n}_all, {n}), {n} = bc_f32(0.0f);" for n in names]
            self.scopes[-1].lines.append(f"if (({row} & {PART_ROWS - 1}) == {PART_ROWS - 1}) {{ {' '.join(ends)} }}")

    def _total(self, phase: int, place: int) -> str:
        return f"a{self.paired}{phase}_{place}"

    def _open_loop(self, var: Var) -> None:
        self.extent_names[var] = self._integer(var.extent)
        self._open()

    def _copies(self, phase: int) -> int:
        """Vectors in flight: short reductions wait for their accumulator, costly functions for themselves."""
        if self.nest.vector is None or self.nest.columns:
            return 1
        if any(r.kind.startswith("arg") for r in self.phases.reductions[phase]):
            return 1
        cost = self.phases.cost[phase]
        if not self.phases.reductions[phase] and cost < 8:
            return 1
        return 4 if cost <= FOUR_AT_ONCE else 2 if cost <= TWO_AT_ONCE else 1

    def _vector_loops(self, phase: int, copies: int) -> None:
        """Whole vectors, several at a time where that hides latency, then the tail. Collected apart: what belongs to
        the row is appended to the row's own lines meanwhile."""
        assert self.nest.vector is not None
        start, stop = self._span()
        block = ["{", f"int64_t v = {start};"]
        if copies > 1:
            block.append(f"for (; v + {copies} * SMELT_L <= {stop}; v += {copies} * SMELT_L) {{")
            block += self._interleaved(copies, lambda copy: self._body(phase, copy))
            block.append("}")
        block += self._collected(phase, 0, f"for (; v + SMELT_L <= {stop}; v += SMELT_L) {{", "}")
        self.tail = True
        block += self._collected(phase, 0, f"if (v < {stop}) {{ const int64_t n = {stop} - v;", "}")
        self.tail = False
        self.scopes[-1].lines += [*block, "}"]

    def _span(self) -> tuple[str, str]:
        """The columns that the passes over a row walk."""
        assert self.nest.vector is not None
        return "0", self._integer(self.nest.vector.extent)

    def _interleaved(self, copies: int, body: Callable[[int], None]) -> list[str]:
        """Several vectors at once, statement by statement: independent work stands side by side."""
        lines: list[list[str]] = []
        for copy in range(copies):
            self.shift = f" + {copy} * SMELT_L" if copy else ""
            self._open()
            body(copy)
            lines.append(self.scopes.pop().lines)
        self.shift = ""
        return ["  " + line for together in zip(*lines, strict=True) for line in together]

    def _collected(self, phase: int, copy: int, head: str, tail: str) -> list[str]:
        self._open()
        self._body(phase, copy)
        scope = self.scopes.pop()
        return [head, *("  " + line for line in scope.lines), tail]

    def _complete(self, reduction: Reduction, name: str, copies: int) -> None:
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

    def _row(self) -> None:
        """Everything of one unit, in the current scope."""
        kept = dict(self.results)
        self.extent_names: dict[Var, str] = {}
        if self.nest.scan is not None:
            self._scan()
        else:
            for step in self._steps():
                step()
        self.results = kept

    def _steps(self) -> list[Callable[[], None]]:
        """Phases, then stores that belong to the row itself."""
        return [*(partial(self._phase, phase) for phase in range(self.phases.count)), self._row_end]

    def _row_end(self) -> None:
        for store in self.phases.row_stores:
            self._emit_store(store)

    def _scan(self) -> None:
        """A running total along the one inner loop."""
        scan, reduction = self.nest.scan, self.nest.reductions[0]
        assert scan is not None
        dtype = reduction.value.dtype
        combine = combine_name(scan.kind, dtype)
        lines = self.scopes[-1].lines
        start = identity(scan.kind, dtype)
        if scan.kind == "sum" and dtype in E.FLOATS and not scan.exclusive:
            start = f"-{start}"  # -0 and x is x, also where x is -0
        lines.append(f"v_{dtype} run = bc_{dtype}({start});")
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

    # walking rows and columns

    def _rows(self) -> list[Var]:
        return [v for v in self.nest.outer if v != self.nest.vector]

    def _column_loops(self, stop: str) -> None:
        """Whole vectors from v to `stop`, several at a time where there are no inner loops, then the tail."""
        block: list[str] = []
        copies = self._column_copies()
        if copies > 1:
            block.append(f"for (; v + {copies} * SMELT_L <= {stop}; v += {copies} * SMELT_L) {{")
            block += self._interleaved(copies, lambda _: self._row())
            block.append("}")
        block += self._collected_row(f"for (; v + SMELT_L <= {stop}; v += SMELT_L) {{", "}")
        self.tail = True
        block += self._collected_row(f"if (v < {stop}) {{ const int64_t n = {stop} - v;", "}")
        self.tail = False
        self.scopes[-1].lines += block

    def _column_copies(self) -> int:
        """Chains of costly functions wait for themselves; a second and a fourth vector fill the gaps."""
        cost = sum(self.phases.cost)
        if self.nest.inner or self.nest.scan is not None or cost < 8:
            return 1
        return 4 if cost <= 200 else 2

    def _collected_row(self, head: str, tail: str) -> list[str]:
        self._open()
        self._row()
        scope = self.scopes.pop()
        return [head, *("  " + line for line in scope.lines), tail]

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
