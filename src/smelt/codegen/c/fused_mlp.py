"""Fused MLP: two GEMMs with constant panels in one task, the hidden layer stays in it.

Input: the nests of two products of constant panels, of which the consumer's left operand is made row by row in the
producer's epilogue. Output: the lines of the kernel. Invariant: a task owns some rows of all batches in both; what the
producer makes never leaves it.
"""

from __future__ import annotations

from typing import ClassVar

from smelt.codegen.cluster import Operand, PackedGemm, Store
from smelt.codegen.kernel_forms import KernelForm, PackedContraction
from smelt.codegen.loops import Nest
from smelt.ir.kernel import Buffer, Ix, Tensor, flat, ix, of, product

from .b2b_gemm import B2bGemmWriter, FusedGemmWriter, block_pointers
from .layout.products import FUSED_MLP
from .names import constant
from .product import ProductSizes, epilogue_call, panels_of_product, product_call, suffix
from .register_epilogue import RegisterEpilogue, find_register_epilogue


class _MlpGemm(FusedGemmWriter):
    """Rows are counted over all batches: panels are the same for all."""

    def __init__(self, nest: Nest, kept: tuple[Tensor, Buffer] | None = None) -> None:
        super().__init__(nest, kept)
        self.aside = "kept - first * ld"
        self.after = "t->next"

    def height(self) -> str:
        return " * ".join(f"({self._integer(v.extent)})" for v in self._rows()) or "1"

    def total(self) -> Ix:
        return product(v.extent for v in self._rows())

    def left(self) -> tuple[str, str]:
        """The producer's left operand lies row by row."""
        work = self.nest.work
        assert isinstance(work, PackedGemm) and isinstance(work.left, Operand)
        depth = self._integer(self._depth_size())
        return f"{self._buffer(work.left.buffer)} + first * ({depth})", depth

    def product_of(self, left: tuple[str, str], block: str, ld: str) -> list[str]:
        depth, panels = self._integer(self._depth_size()), self._buffer(panels_of_product(self.nest.products[0]))
        made = f"{', '.join(left)}, {panels}, {depth}, {block}, {ld}, count, 0, {ld} / 16, {ld}"
        return [product_call(self.nest.products[0], made, self.after)]

    def panels_text(self) -> str:
        """Its panels as the product before it prefetches them."""
        if suffix(self.nest.products[0]):
            return "(smelt_panels){NULL, 0}"
        panels, depth = self._buffer(panels_of_product(self.nest.products[0])), self._integer(self._depth_size())
        return f"(smelt_panels){{{panels}, ({depth}) * 16}}"

    def rows_of(self, block: str, ld: str) -> list[str]:
        rows = self._rows()
        extents = [self._integer(v.extent) for v in rows]
        unit = self._unit(f"{block} - first * {ld}", ld)
        step = self._advance(rows, extents, False)
        loop = ["for (; u < first + count; u++) {", *("  " + x for x in [*unit, *step]), "}"]
        return ["int64_t u = first;", *self._decode(rows, extents, False), *loop] if unit else []

    def scoped(self, lines: list[str]) -> list[str]:
        head = [f"const int64_t c0 = 0, c1 = {self._integer(self.columns)};", "(void)c0; (void)c1;"]
        return ["{", *("  " + x for x in [*self.scopes[0].lines, *head, *lines]), "}"]

    def block_of_rows(self, left: tuple[str, str], block: str, ld: str) -> list[str]:
        epilogue = self._row_epilogue()
        if epilogue is not None:
            return self.scoped(self._row_epilogue_block(epilogue, left, block, ld))
        loop = self.rows_of(block, ld)
        return self.scoped([*self.product_of(left, block, ld), *loop])

    def _row_epilogue(self) -> RegisterEpilogue | None:
        """The epilogue of what stays in the block, as something that is done to the sums before they are stored."""
        nest = self.nest
        if self.kept is None or nest.inner or nest.reductions or len(nest.stores) != 1:
            return None
        extents = tuple(v.extent for v in nest.outer)
        whole = Store(Buffer("block", "f32", extents), flat([of(v) for v in nest.outer], extents), nest.stores[0].value)
        found = find_register_epilogue(whole, self.columns, nest.outer[-1])
        return found if found is not None and found.added is None else None

    def _row_epilogue_block(self, epilogue: RegisterEpilogue, left: tuple[str, str], block: str, ld: str) -> list[str]:
        depth, panels = self._integer(self._depth_size()), self._buffer(panels_of_product(self.nest.products[0]))
        limits = f".least = {constant(epilogue.least, 'f32')}, .most = {constant(epilogue.most, 'f32')}"
        goes = f".bias = {self._buffer(epilogue.bias)}, .to = {block}, .ld = {ld}, .columns = c1, {limits}"
        made = f"{', '.join(left)}, {panels}, {depth}, {block}, {ld}, count, 0, {ld} / 16"
        return [
            f"const smelt_epilogue epilogue = {{{goes}}};",
            epilogue_call(self.nest.products[0], f"{made}, &epilogue", self.after),
        ]


class FusedMlpWriter(B2bGemmWriter):
    """The kernel's body around rows that both compute."""

    form: ClassVar[KernelForm] = FUSED_MLP

    def __init__(self, producer: Nest, kept: tuple[Tensor, Buffer], consumer: Nest) -> None:
        self.producer, self.consumer = _MlpGemm(producer, kept), _MlpGemm(consumer)
        self.consumer.share(self.producer.buffers, self.producer.symbols)

    def sizes(self) -> ProductSizes:
        first, second = self.producer, self.consumer
        assert isinstance(first, _MlpGemm)
        made = second.nest.products[0].definition
        assert isinstance(made, PackedContraction)
        blocks = first.columns + 16 if first.in_place else 2 * first.columns + 32
        extra = first.extra_bytes() + second.extra_bytes()
        wide = blocks + second.columns + 16
        return ProductSizes(ix(1), first.total(), second.columns, made.a.shape[-1], extra, True, wide, by_rows=True)

    def body(self) -> list[str]:
        first, second = self.producer, self.consumer
        assert isinstance(first, _MlpGemm) and isinstance(second, _MlpGemm)
        head = [
            "const int64_t first = task * t->block_rows;",
            f"const int64_t count = smelt_min(t->block_rows, ({first.height()}) - first);",
            f"const int64_t ld = {first.width()}, ld2 = {second.width()};",
            *block_pointers(("block", "ld"), ("block2", "ld2"), *([] if first.in_place else [("kept", "ld")])),
            "(void)row;",
            *first.row_pointers("w"),
            *second.row_pointers("y"),
        ]
        kept = "block" if first.in_place else "kept"
        first.after = second.panels_text()
        lines = [
            *first.block_of_rows(first.left(), "block", "ld"),
            *second.block_of_rows((kept, "ld"), "block2", "ld2"),
        ]
        return [
            "char *local = t->memory ? smelt_claim(t) : __builtin_alloca_with_align((size_t)t->block_bytes, 512);",
            *head,
            *lines,
            "if (t->memory) smelt_release(t, local);",
        ]
