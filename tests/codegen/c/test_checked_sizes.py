"""Products of sizes are computed once, and overflow is never lost."""

from smelt.codegen.c.checked_sizes import Products, arena_lines, known_shapes
from smelt.ir.kernel import Sym, ix, of

N, M = of(Sym("n")), of(Sym("m"))


def text(size: object) -> str:
    return str(next(iter(size.syms)).name)  # type: ignore[attr-defined]


def test_equal_products_have_one_name_whatever_their_order() -> None:
    products = Products(text)
    assert products.name([N, ix(3), M], 4) == (
        "n0", ["const int64_t n0 = smelt_size_mul(smelt_size_mul(12, n, &bad), m, &bad);"]
    )  # fmt: skip
    assert products.name([M, N, ix(12)], 1) == ("n0", [])
    assert products.name([N, M], 4)[0] == "n1"


def test_known_sizes_beyond_all_integers_are_multiplied_at_run_time() -> None:
    _, lines = Products(text).name([ix(1 << 40), ix(1 << 40)], 4)
    assert lines[0].count("smelt_size_mul") == 2


def test_buffers_of_a_slot_share_its_place() -> None:
    lines = arena_lines([["a", "b"], ["c"]], {"a": "n0", "b": "n0", "c": "n1"}, 3)
    assert lines[0] == "const int64_t slot3 = (n0 + 63) & ~(int64_t)63;"
    assert "char *at3 = env->scratch(env, slot3 + slot4);" in lines and "char *at4 = at3 + slot3;" in lines
    assert "void *b = SMELT_FENCED_SLOT(env, at3, n0);" in lines


def test_known_shapes_are_a_table_by_place_and_rank() -> None:
    table, call = known_shapes({0: [ix(2), ix(3)], 4: []})
    assert "{0, 2, 2, 3, 4, 0}" in table and "known, 2)" in call
