"""Index algebra: normal forms are equal where values are, and keep the value at every point."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smelt.ir.kernel import Ix, Sym, Var, fn, ix, of
from smelt.ir.kernel.index import Atom, at_least, coefficient, evaluate, exact_div, nonneg, one_not_1, substitute, sym

N, M = sym("n"), sym("m")
P, Q = Var("i", ix(12)), Var("j", ix(5))


def points() -> list[dict[str, int]]:
    return [{"n": n, "m": m, "i": i, "j": j} for n, m, i, j in itertools.product((1, 2, 7), (1, 3), (0, 5, 11), (0, 4))]


def test_terms_are_sorted_and_gathered() -> None:
    assert (N + M) * 2 - N == N + M * 2
    assert (N - N).const == 0
    assert hash(N * M + 1) == hash(ix(1) + M * N)


def test_a_quotient_and_its_remainder_are_the_number() -> None:
    for by in (ix(4), N, N * 3):
        assert (of(P) // by) * by + of(P) % by == of(P)


def test_divisions_that_loops_make_exact_disappear() -> None:
    flat = of(P) * 5 + of(Q)
    assert flat // 5 == of(P)
    assert flat % 5 == of(Q)
    assert of(P) // 12 == ix(0)
    assert of(P) % 12 == of(P)


def test_nested_divisions_are_one() -> None:
    x = sym("x")
    assert (x // 4) // 3 == x // 12


@pytest.mark.parametrize(
    ("value", "by", "found"),
    [(N * M * 6, N * 2, M * 3), (N * N - M * M, N - M, N + M), (N * 6 + 3, ix(3), N * 2 + 1), (N + 1, N, None)],
)
def test_exact_division(value: Ix, by: Ix, found: Ix | None) -> None:
    assert exact_div(value, by) == found


def test_order_is_provable_with_every_loop_variable_in_range() -> None:
    assert at_least(ix(11), of(P)) and not at_least(ix(10), of(P))
    assert at_least(N * M, N) and not at_least(N, M)
    assert nonneg(N * 5 + of(Q)) and not nonneg(N - 2)
    assert fn("max", N, N + 1) == N + 1 and fn("min", N, N + 1) == N


def test_coefficients_of_affine_values_alone() -> None:
    assert coefficient(of(P) * N + of(Q), P) == (N, of(Q))
    assert coefficient(of(Q), P) == (ix(0), of(Q))
    assert coefficient(of(P) * of(P), P) is None
    assert coefficient(of(P) // N, P) is None


def test_substitution_reaches_into_functions() -> None:
    table: dict[Atom, Ix] = {P: of(Q) * 4 + 3}
    assert substitute(of(P) // 4, table) == of(Q)
    assert substitute(of(P) % 4, table).const == 3


def test_a_broadcast_size_is_the_one_that_is_not_1() -> None:
    size = one_not_1((N, M))
    assert [evaluate(size, {"n": n, "m": m}) for n, m in ((1, 1), (1, 3), (7, 1), (7, 7))] == [1, 3, 7, 7]


LEAVES = st.sampled_from([N, M, of(P), of(Q)]) | st.integers(-4, 9).map(ix)


def joined(parts: st.SearchStrategy[Ix]) -> st.SearchStrategy[Ix]:
    divisors = st.integers(1, 6).map(ix) | st.sampled_from([N, M, N * 2])
    return (
        st.tuples(parts, parts).map(lambda p: p[0] + p[1])
        | st.tuples(parts, parts).map(lambda p: p[0] - p[1])
        | st.tuples(parts, parts).map(lambda p: p[0] * p[1])
        | st.tuples(parts, divisors).map(lambda p: p[0] // p[1])
        | st.tuples(parts, divisors).map(lambda p: p[0] % p[1])
    )


def exactly(value: Ix, env: dict[str, int]) -> int:
    """The same number by substitution of all that it is made of, which simplifies on other ways."""
    table: dict[Atom, Ix] = {a: ix(env[a.name]) for a in (P, Q, *value.syms) if isinstance(a, (Var, Sym))}
    found = substitute(value, table).const
    assert found is not None
    return found


@settings(max_examples=150, deadline=None)
@given(value=st.recursive(LEAVES, joined, max_leaves=8))
def test_a_value_is_the_same_number_however_it_is_reached(value: Ix) -> None:
    for env in points():
        assert evaluate(value, env) == exactly(value, env)


@settings(max_examples=150, deadline=None)
@given(a=st.recursive(LEAVES, joined, max_leaves=5), b=st.recursive(LEAVES, joined, max_leaves=5), by=st.integers(1, 7))
def test_simplification_keeps_every_value(a: Ix, b: Ix, by: int) -> None:
    for env in points():
        x, y = evaluate(a, env), evaluate(b, env)
        assert evaluate(a + b, env) == x + y
        assert evaluate(a * b, env) == x * y
        assert evaluate((a + b) // by, env) == (x + y) // by
        assert evaluate((a * 2 + b) % by, env) == (x * 2 + y) % by
        if at_least(a, b):
            assert x >= y
