"""A user's C function over one element -> tensors: its statements are run once, on tensors in place of numbers.

Input: pycparser's trees, and values of the parameters. Output: the value that is returned. Invariant: both sides of a
condition are computed and one is selected, so a condition has no side effect; loops of a constant number of turns are
unrolled; what has no counterpart is an error that names the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .c_text import SCALARS, Functions, at_line
from .values import CONSTANTS, Arithmetic, UnknownError, Value

_MOST_TURNS: Final = 256
_MOST_CALLS: Final = 16
Env = dict[str, Value]


class Evaluator:
    """Runs statements in an environment of locals. `run` gives what a function returns, None where it does not."""

    def __init__(self, functions: Functions, arithmetic: Arithmetic, depth: int = 0) -> None:
        self.functions, self.a, self.depth = functions, arithmetic, depth

    def function(self, name: str, given: Sequence[Value]) -> Value:
        """The result of one of the text's functions."""
        tree = self.functions.by_name[name]
        if self.depth > _MOST_CALLS:
            raise self.unknown(tree, "a function that calls itself")
        parameters: list[Any] = tree.decl.type.args.params if tree.decl.type.args else []
        env: Env = {}
        for one, value in zip(parameters, given, strict=True):
            env[one.name] = self.a.cast(value, self.type_of(one.type, one))
        inner = type(self)(self.functions, self.a, self.depth + 1)
        returned = inner.run(block_of(tree.body), env)
        if returned is None:
            raise self.unknown(tree, f"the function {name} returns nothing on some way")
        return self.a.cast(returned, self.type_of(tree.decl.type.type, tree))

    def type_of(self, declared: Any, node: Any) -> str:
        names = " ".join(getattr(getattr(declared, "type", None), "names", []))
        if names not in SCALARS:
            raise self.unknown(node, f"a local of type {names or 'pointer or array'}")
        return self.a.dtype if names in ("float", "double") else SCALARS[names]

    def unknown(self, node: Any, what: str) -> Exception:
        return at_line(self.functions.kernel, node, f"{what} is not possible in an element or row function")

    def run(self, statements: Sequence[Any], env: Env) -> Value | None:
        for place, statement in enumerate(statements):
            kind = type(statement).__name__
            if kind == "Return":
                return self.value(statement.expr, env)
            if kind == "If":
                returned = self._branch(statement, statements[place + 1 :], env)
                if returned is not None:
                    return returned
                if _returns(statement):
                    return None
            elif kind == "Compound":
                return self.run([*block_of(statement), *statements[place + 1 :]], env)
            else:
                self.statement(statement, env)
        return None

    def statement(self, node: Any, env: Env) -> None:
        kind = type(node).__name__
        if kind == "Decl":
            if node.init is not None:
                env[node.name] = self.a.cast(self.value(node.init, env), self.type_of(node.type, node))
            else:
                self.type_of(node.type, node)
        elif kind == "DeclList":
            for one in node.decls:
                self.statement(one, env)
        elif kind == "Assignment":
            self.assign(node, env)
        elif kind == "UnaryOp" and node.op in ("p++", "++", "p--", "--"):
            self._step(node, env)
        elif kind == "For":
            self.loop(node, env)
        elif kind != "EmptyStatement":
            raise self.unknown(node, f"a statement of the kind {kind}")

    def assign(self, node: Any, env: Env) -> None:
        if type(node.lvalue).__name__ != "ID":
            raise self.unknown(node, "a store to anything but a local")
        value = self.value(node.rvalue, env)
        name = node.lvalue.name
        if node.op != "=":
            value = self.operate(node, node.op[:-1], self._local(node.lvalue, env), value)
        env[name] = self.a.cast(value, self.a.dtype_of(env[name])) if name in env else value

    def loop(self, node: Any, env: Env) -> None:
        """A constant number of turns, unrolled."""
        self.statement(node.init, env)
        body = block_of(node.stmt)
        for _ in range(_MOST_TURNS):
            going = self.value(node.cond, env)
            if not isinstance(going, bool):
                raise self.unknown(node, "a loop whose number of turns depends on the data")
            if not going:
                return
            if self.run(body, env) is not None:
                raise self.unknown(node, "a return from within a loop")
            self.statement(node.next, env)
        raise self.unknown(node, f"a loop of more than {_MOST_TURNS} turns")

    def value(self, node: Any, env: Env) -> Value:
        kind = type(node).__name__
        if kind == "Constant":
            return self._constant(node)
        if kind == "ID":
            return self._local(node, env)
        if kind == "BinaryOp":
            return self.operate(node, node.op, self.value(node.left, env), self.value(node.right, env))
        if kind == "UnaryOp":
            return self._unary(node, env)
        if kind == "TernaryOp":
            chosen = (self.value(one, env) for one in (node.cond, node.iftrue, node.iffalse))
            return self.a.select(*chosen)
        if kind == "Cast":
            return self.a.cast(self.value(node.expr, env), self.type_of(node.to_type.type, node))
        if kind == "FuncCall":
            return self._call(node, env)
        raise self.unknown(node, f"an expression of the kind {kind}")

    def operate(self, node: Any, operator: str, left: Value, right: Value) -> Value:
        try:
            return self.a.binary(operator, left, right)
        except UnknownError as error:
            raise self.unknown(node, str(error)) from error

    def _branch(self, node: Any, rest: Sequence[Any], env: Env) -> Value | None:
        """Where a branch returns, the rest of the function belongs to the other one; else locals are selected."""
        condition = self.value(node.cond, env)
        sides = [[node.iftrue] if node.iftrue else [], [node.iffalse] if node.iffalse else []]
        if _returns(node):
            results = [self.run([*side, *rest], dict(env)) for side in sides]
            if results[0] is None or results[1] is None:
                return None
            return self.a.select(condition, results[0], results[1])
        changed = [dict(env), dict(env)]
        for side, inner in zip(sides, changed, strict=True):
            self.run(side, inner)
        for name in env:
            if changed[0][name] is not changed[1][name]:
                env[name] = self.a.select(condition, changed[0][name], changed[1][name])
        return None

    def _step(self, node: Any, env: Env) -> None:
        one = 1 if "+" in node.op else -1
        env[node.expr.name] = self.operate(node, "+", self._local(node.expr, env), one)

    def _local(self, node: Any, env: Env) -> Value:
        if node.name in env:
            return env[node.name]
        if node.name in CONSTANTS:
            return CONSTANTS[node.name]
        if node.name in ("true", "false"):
            return node.name == "true"
        raise at_line(self.functions.kernel, node, f"{node.name} has no value here")

    def _constant(self, node: Any) -> Value:
        text = node.value.rstrip("uUlL") if "int" in node.type or "long" in node.type else node.value.rstrip("fFlL")
        if "int" in node.type or "long" in node.type:
            return int(text, 0)
        return float.fromhex(text) if text.lower().startswith("0x") else float(text)

    def _unary(self, node: Any, env: Env) -> Value:
        try:
            return self.a.unary(node.op, self.value(node.expr, env))
        except UnknownError as error:
            raise self.unknown(node, str(error)) from error

    def _call(self, node: Any, env: Env) -> Value:
        arguments: list[Any] = node.args.exprs if node.args else []
        given = [self.value(one, env) for one in arguments]
        name = node.name.name
        if name in self.functions.by_name:
            return self.function(name, given)
        made = self.a.call(name, given)
        if made is None:
            raise self.unknown(node, f"a call of {name}")
        return made


def _returns(node: Any) -> bool:
    """Whether some way through the statement returns."""
    kind = type(node).__name__
    if kind == "Return":
        return True
    inner: list[Any] = block_of(node) if kind == "Compound" else []
    if kind == "If":
        inner += [one for one in (node.iftrue, node.iffalse) if one is not None]
    return any(_returns(one) for one in inner)


def block_of(node: Any) -> list[Any]:
    """The statements of a compound; one that stands alone is a list of itself."""
    return list(node.block_items or []) if type(node).__name__ == "Compound" else [node]
