"""Nothing is read before it was stored: views between element-wise ops and reductions, and the check itself."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from region_check import Graph, check, floats

from smelt.base.errors import CodegenError
from smelt.base.target import select_targets
from smelt.codegen import Backends, find_backends
from smelt.codegen.cluster import Cluster, Store
from smelt.codegen.schedule_check import check_schedule
from smelt.ir.kernel import Buffer, Var, ix, of
from smelt.ir.kernel import expr as E
from smelt.ir.load import load_model
from smelt.ops import analyze
from smelt.partition import capture
from smelt.passes import run_passes


class Views:
    """A softmax, then reshapes, transposes (often of axes of one element) and element-wise ops, drawn at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = self.random.choice([12, 16, 24, 32, 48])
        self.shape = self.factors(self.random.randint(2, 4))
        self.free = self.random.random() < 0.5
        self.first = list(self.shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.add("Softmax", axis=self.random.randrange(-1, len(self.shape)))
        for _ in range(self.random.randint(3, 6)):
            self.random.choice([self.reshape, self.reshape, self.scale, self.transpose, self.move_one, self.bend])()

    def factors(self, rank: int) -> list[int]:
        """The number of elements as a product of `rank` sizes."""
        sizes, left = [1] * rank, self.count
        for prime in (2, 3):
            while left % prime == 0:
                sizes[self.random.randrange(rank)] *= prime
                left //= prime
        return sizes

    def add(self, op: str, *more: str, **attributes: object) -> None:
        value = self.nodes[-1].output[0] if self.nodes else "x"
        self.nodes.append(helper.make_node(op, [value, *more], [f"v{len(self.nodes)}"], **attributes))

    def constant(self, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def reshape(self) -> None:
        self.shape = self.factors(self.random.randint(2, 5))
        target = list(self.shape)
        if self.free:
            target[self.random.randrange(len(target))] = -1
        self.add("Reshape", self.constant(np.array(target, np.int64)))

    def scale(self) -> None:
        sizes = [s if self.random.random() < 0.5 else 1 for s in self.shape]
        self.add("Mul", self.constant(floats(*sizes)))

    def transpose(self) -> None:
        order = list(range(len(self.shape)))
        self.random.shuffle(order)
        self.permute(order)

    def move_one(self) -> None:
        ones = [axis for axis, size in enumerate(self.shape) if size == 1]
        if ones:
            axis = self.random.choice(ones)
            order = [a for a in range(len(self.shape)) if a != axis]
            order.insert(self.random.randrange(len(self.shape)), axis)
            self.permute(order)

    def permute(self, order: list[int]) -> None:
        self.shape = [self.shape[axis] for axis in order]
        self.add("Transpose", perm=order)

    def bend(self) -> None:
        self.add("Sigmoid")

    def model(self) -> onnx.ModelProto:
        sizes = ["n", *self.first[1:]] if self.free else self.first
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
        out = [helper.make_tensor_value_info(self.nodes[-1].output[0], TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", given, out, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def generate(model: onnx.ModelProto) -> None:
    """As far as C text, which nobody compiles."""
    loaded = load_model(model)
    run_passes(loaded)
    backend = Backends(find_backends("c"), analyze(loaded), list(loaded.graph.inputs))
    backend.generate(capture(loaded, backend.all, (), (), True).regions, select_targets(None, ("v3",)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=166)
@example(seed=434)
@given(seed=st.integers(0, 2**32 - 1))
def test_views_are_not_read_before_their_source(seed: int) -> None:
    generate(Views(seed).model())


@pytest.mark.full
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_many_views_are_not_read_before_their_source(seed: int) -> None:
    generate(Views(seed).model())


# Seeds of graphs whose copy into the output was computed in the first pass over a row, before the softmax was complete.
COPIED_TOO_EARLY = (166, 434)


def test_a_copy_follows_what_it_copies() -> None:
    made = {seed: Views(seed) for seed in (*COPIED_TOO_EARLY, *range(16))}
    check(*(Graph(f"views {seed}", [floats(*v.first)], models=[v.model()]) for seed, v in made.items()))


def step(reads: Buffer, writes: Buffer, order: int) -> Cluster:
    var = Var(f"i{order}", ix(8))
    return Cluster(order, [var], stores=[Store(writes, of(var), E.load(reads, of(var)))])


def test_the_check_sees_a_load_of_what_is_not_yet_stored() -> None:
    x, t, y = (Buffer(name, "f32", (ix(8),)) for name in "xty")
    check_schedule([step(x, t, 0), step(t, y, 1)])
    with pytest.raises(CodegenError, match="before it is complete"):
        check_schedule([step(t, y, 0), step(x, t, 1)])
    with pytest.raises(CodegenError, match="before it is complete"):
        check_schedule([step(t, t, 0)])
