"""Slots, sizes, fallbacks, refusals and one-op programs."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import sympy
import torch
from exported_programs import assert_same, run, traced
from torch.utils._sympy.functions import FloorDiv

from smelt.base.errors import ExportError
from smelt.export import (
    ExportOptions,
    forget_converter,
    one_op,
    reason_against,
    register_converter,
    table,
    translate,
    translate_program,
)
from smelt.export.translate import Translator

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("smelt_tests::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return -x


@opaque.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def test_one_program_serves_all_sizes():
    def function(x: torch.Tensor) -> Any:
        return x.view(-1, 2) * x.size(0), x.size(1) // 3, torch.arange(x.size(1))

    program = translate(traced(function, X))
    for shape in ((3, 4), (5, 6), (2, 10)):
        x = torch.randn(*shape)
        for found, expected in zip(run(program, [x]), function(x), strict=True):
            torch.testing.assert_close(found, expected)


def test_results_that_are_inputs_or_nothing_take_no_node():
    program = translate(traced(lambda x, y: (x, None, y + 1, y + 1), X, X.clone()))
    assert [slot.kind for slot in program.outputs] == ["input", "none", "tensor", "tensor"]
    assert program.outputs[0].index == 0
    assert [slot.kind for slot in program.inputs] == ["unused", "tensor"]
    found = run(program, [X, X])
    assert found[0] is X and found[1] is None


def test_frozen_placeholders_become_initializers_that_share_memory():
    gm = traced(lambda x, w: x @ w, X, torch.eye(4))
    weight = torch.randn(4, 4)
    name = next(node.name for node in gm.graph.nodes if node.op == "placeholder" and node.name.startswith("w"))
    program = translate(gm, options=ExportOptions(constants={name: weight}))
    assert [slot.kind for slot in program.inputs] == ["tensor", "constant"]
    (initializer,) = program.model.graph.initializers.values()
    assert initializer.const_value.numpy().ctypes.data == weight.data_ptr()
    torch.testing.assert_close(run(program, [X, None])[0], X @ weight)


def test_data_dependent_sizes_are_read_from_the_values():
    def function(x: torch.Tensor) -> Any:
        found = torch.nonzero(x > 0)
        return found, found.size(0) * 2

    assert_same(function, X)


def test_a_decomposition_is_used_where_the_table_has_nothing():
    program = translate(traced(lambda x: torch.special.entr(x), X.abs()), options=ExportOptions(torchlib=False))
    assert program.report.origins["aten::special_entr"] == {"decomposition": 1}
    torch.testing.assert_close(run(program, [X.abs()])[0], torch.special.entr(X.abs()))


def test_what_nothing_converts_is_named_with_its_reason():
    gm = traced(lambda x: opaque(x) + 1, X)
    with pytest.raises(ExportError) as error:
        translate(gm)
    assert "smelt_tests.opaque" in str(error.value) and error.value.code == "SM-EXPORT-001"
    reasons = {node.name: reason_against(node) for node in gm.graph.nodes if node.op == "call_function"}
    assert reasons["add"] is None
    assert "no decomposition" in str(reasons["opaque"])


def test_nodes_with_symbolic_arguments_are_judged_like_others():
    gm = traced(lambda x: (x.view(x.size(1), x.size(0)) + x.size(0), x.split(2, 1)[1], x.new_zeros(x.size(0) * 2)), X)
    assert [
        reason_against(node) for node in gm.graph.nodes if node.op == "call_function" and reason_against(node)
    ] == []


def test_a_converter_that_fails_is_named_and_leaves_nothing_behind():
    @register_converter("smelt_tests::opaque")
    def failing(call: Any, x: Any) -> Any:
        call.op("Neg", x)
        raise ZeroDivisionError("oops")

    try:
        gm = traced(lambda x: opaque(x) + 1, X)
        with pytest.raises(ExportError, match="user converter failed: ZeroDivisionError: oops"):
            translate(gm)
    finally:
        forget_converter("smelt_tests::opaque")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.fftn(x, dim=(0, 1)).real,
        lambda x: torch.view_as_real(torch.fft.rfft(x, dim=0, norm="ortho")),
        lambda x: torch.view_as_real(torch.fft.ifft(torch.complex(x, x + 1), dim=0)),
    ],
)
def test_a_fourier_transform_of_any_length(function):
    program = torch.export.export(Function(function), (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    made = translate_program(program)
    x = torch.randn(57, 4)
    torch.testing.assert_close(run(made, [x])[0], function(x), rtol=1e-4, atol=1e-5)


def test_a_size_that_is_no_polynomial_tells_nothing_of_its_symbol():
    sizes, symbol = Translator(ExportOptions()).sizes, sympy.Symbol("s0", integer=True)
    sizes.learn_shape(ir.Value(name="x"), [FloorDiv(symbol, 2) + 1])
    assert sizes.known(FloorDiv(symbol, 2) + 1) and not sizes.known(symbol)
    sizes.learn_shape(ir.Value(name="y"), [2 * symbol + 1])
    assert sizes.known(symbol)


def test_a_number_that_a_node_computes_is_a_size():
    sizes = Translator(ExportOptions()).sizes
    number = ir.Value(name="n", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    vector = sizes.vector([number, 3])
    assert vector.producer().op_type == "Concat" and vector.producer().inputs[0].producer().op_type == "Reshape"
    assert sizes.scalar(number) is number


def test_a_user_converter_comes_first():
    @register_converter("smelt_tests::opaque")
    def negated(call: Any, x: Any) -> Any:
        return call.op("Neg", x)

    try:
        program = translate(traced(opaque, X))
        assert program.report.origins["smelt_tests::opaque"] == {"user": 1}
        torch.testing.assert_close(run(program, [X])[0], -X)
    finally:
        forget_converter("smelt_tests::opaque")


def test_types_without_a_kernel_are_computed_in_wider_ones():
    x = torch.randn(3, 4).to(torch.bfloat16)
    program = translate(traced(lambda x: (x + x).softmax(-1), x))
    assert "Cast" in [node.op_type for node in program.model.graph]


def test_one_op_programs_serve_every_size_that_fits():
    program = one_op(torch.ops.aten.add.Tensor, (torch.empty(3, 4), torch.empty(4)))
    assert program.guards is not None
    assert program.guards.fit([(5, 6), (6,)])
    assert not program.guards.fit([(5, 6), (5,)])
    assert not program.guards.fit([(5, 6), (1,)])
    x, y = torch.randn(5, 6), torch.randn(6)
    torch.testing.assert_close(run(program, [x, y])[0], x + y)


def test_one_op_programs_have_a_slot_per_result():
    x = torch.randn(6, 2)
    program = one_op(torch.ops.aten.split.Tensor, (x, 2))
    for found, expected in zip(run(program, [x]), x.split(2), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_call_that_torch_refuses_is_refused():
    with pytest.raises(ExportError) as error:
        one_op(torch.ops.aten.mm.default, (torch.empty(3, 4), torch.empty(5, 6)))
    assert error.value.code == "SM-EXPORT-002"


def test_strides_of_a_turned_tensor_are_those_of_its_memory():
    class Strided(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.t().as_strided((2, 2), (1, 2), 1) + 1, (x.t() * 2).as_strided((3,), (2,)) + 1

    found = run(translate_program(torch.export.export(Strided(), (X,))), (X,))
    for ours, eager in zip(found, Strided()(X), strict=True):
        assert torch.equal(ours, eager)


def test_strides_of_a_part_of_a_tensor_are_refused():
    class Strided(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, 1:].as_strided((2, 2), (1, 1)) + 1

    with pytest.raises(ExportError, match="strides of its argument"):
        translate_program(torch.export.export(Strided(), (X,)))


def test_every_target_of_the_table_exists_in_torch():
    for entry in table():
        if entry.origin == "table":
            namespace, name = entry.target.split("::")
            base, _, overload = name.partition(".")
            if namespace in ("aten", "prims"):
                assert hasattr(getattr(getattr(torch.ops, namespace), base), overload or "default"), entry.target


def test_more_targets_are_converted_than_by_torchlib_alone():
    assert sum(entry.origin != "decomposition" for entry in table()) > 505


def test_source_lines_are_kept():
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (X,))
    model = translate_program(program).model
    assert any("nn/modules" in node.metadata_props.get("smelt.source", "") for node in model.graph)


def test_a_copy_of_an_input_is_no_alias_of_it():
    program = translate(traced(lambda x: (x.clone(), x.amax(())), torch.tensor(1.0)))
    assert [slot.kind for slot in program.outputs] == ["tensor", "tensor"]


def test_two_copies_of_one_value_are_two_outputs():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y.clone(), y

    program = translate(traced(function, X))
    assert [slot.index for slot in program.outputs] == [0, 1, 0]
