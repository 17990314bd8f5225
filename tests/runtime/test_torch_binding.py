"""Torch tensors over a session without copies."""

from __future__ import annotations

import threading

import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch")

from smelt.base import InputError  # noqa: E402
from smelt.runtime import Feed, Fetch, Session, TorchRunner, integer_feed, session_for  # noqa: E402

TYPES = {
    "float32": ir.DataType.FLOAT, "float64": ir.DataType.DOUBLE, "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16, "int8": ir.DataType.INT8, "int64": ir.DataType.INT64, "bool": ir.DataType.BOOL,
    "uint16": ir.DataType.UINT16,
}  # fmt: skip


def twice(dtype: str, rank: int) -> Session:
    """Two copies of the input, one after the other; the input itself for a scalar."""
    x = ir.Value(name="x", type=ir.TensorType(TYPES[dtype]), shape=ir.Shape([f"d{i}" for i in range(rank)]))
    axis = [ir.AttrInt64("axis", 0)] if rank else []
    node = ir.Node("", "Concat" if rank else "Identity", [x, x] if rank else [x], axis)
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(TYPES[dtype])
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 20}, name="g")
    return session_for(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())


@pytest.mark.parametrize("known", [False, True], ids=["taken", "preallocated"])
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (), (1,)])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_dtype_and_shape_goes_in_and_out(dtype: str, shape: tuple[int, ...], known: bool):
    x = (torch.randn(shape) * 3).to(getattr(torch, dtype))
    wanted = torch.cat([x, x]) if shape else x
    sizes = (lambda args: [tuple(wanted.shape)]) if known else None
    runner = TorchRunner(twice(dtype, len(shape)), [Feed("x", 0, dtype)], [Fetch("y", dtype)], sizes)
    (found,) = runner([x])
    assert found.dtype == wanted.dtype and found.shape == wanted.shape and torch.equal(found, wanted)


def test_a_tensor_that_is_not_contiguous_is_read_right():
    x = torch.randn(4, 6).t()
    runner = TorchRunner(twice("float32", 2), [Feed("x", 0, "float32")], [Fetch("y", "float32")])
    assert torch.equal(runner([x])[0], torch.cat([x, x]))


def test_results_outlive_the_runner():
    runner = TorchRunner(twice("float32", 1), [Feed("x", 0, "float32")], [Fetch("y", "float32")])
    (found,) = runner([torch.ones(1000)])
    del runner
    assert found.sum() == 2000


def test_integers_become_scalars():
    runner = TorchRunner(twice("int64", 0), [Feed("x", 0, "int64", integer_feed())], [Fetch("y", "int64")])
    assert [runner([value])[0].item() for value in (5, 7, 5)] == [5, 7, 5]


def test_parameters_and_many_inputs():
    names = [f"x{at}" for at in range(9)]
    values = [ir.Value(name=n, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n"])) for n in names]
    node = ir.Node("", "Sum", values)
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(values, node.outputs, nodes=[node], opset_imports={"": 20}, name="g")
    session = session_for(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
    feeds = [Feed(name, at, "float32") for at, name in enumerate(names)]
    given = [torch.nn.Parameter(torch.randn(5)) for _ in names]
    found = TorchRunner(session, feeds, [Fetch("y", "float32")], [(5,)])(given)[0]
    torch.testing.assert_close(found, sum(given).detach())
    empty = [torch.empty(0) for _ in names]
    assert TorchRunner(session, feeds, [Fetch("y", "float32")])(empty)[0].shape == (0,)


def test_a_session_of_another_type_is_refused_before_memory_is_shared():
    with pytest.raises(InputError, match=r"'y' is tensor\(float\) in the model, and float16 in torch"):
        TorchRunner(twice("float32", 1), [Feed("x", 0, "float32")], [Fetch("y", "float16")])


def test_a_tensor_of_another_type_than_foretold_is_converted():
    runner = TorchRunner(twice("float16", 1), [Feed("x", 0, "float16")], [Fetch("y", "float16")])
    assert torch.equal(runner([torch.ones(3)])[0], torch.ones(6, dtype=torch.float16))


def bound(sizes: object) -> TorchRunner:
    return TorchRunner(twice("float32", 2), [Feed("x", 0, "float32")], [Fetch("y", "float32")], sizes)


@pytest.mark.parametrize("rows", [3, 300], ids=["made ahead", "made in the call"])
def test_a_call_sees_other_memory_than_the_call_before(rows: int):
    runner = bound([(2 * rows, 8)])
    first, second = torch.randn(rows, 8), torch.randn(rows, 8)
    views = [torch.randn(8, rows).t(), torch.randn(rows, 16)[:, ::2], torch.randn(rows + 1, 8)[1:]]
    for x in (first, first, second, *views, first.double(), first):
        assert torch.equal(runner([x])[0], torch.cat([x, x]).float())
    first.mul_(2)
    assert torch.equal(runner([first])[0], torch.cat([first, first]))


def test_sizes_may_change_over_the_same_memory():
    runner = bound(lambda args: [(2 * args[0].shape[0], args[0].shape[1])])
    memory = torch.randn(24)
    for rows in (4, 6, 4, 1, 24):
        x = memory.view(rows, -1)
        assert torch.equal(runner([x])[0], torch.cat([x, x]))


@pytest.mark.parametrize("rows", [3, 300], ids=["made ahead", "made in the call"])
def test_results_are_tensors_of_their_own(rows: int):
    runner = bound([(2 * rows, 8)])
    given = [torch.full((rows, 8), float(at)) for at in range(40)]
    found = [runner([x])[0] for x in given]
    assert all(bool((y == at).all()) for at, y in enumerate(found))
    assert len({y.untyped_storage().data_ptr() for y in found}) == 40
    found[0].resize_(5000)


def test_results_belong_to_the_mode_of_their_call():
    runner = bound([(6, 8)])
    with torch.inference_mode():
        assert runner([torch.ones(3, 8)])[0].is_inference()
    assert not runner([torch.ones(3, 8)])[0].is_inference()


@pytest.mark.parametrize("rows", [3, 300], ids=["made ahead", "made in the call"])
def test_calls_at_once_do_not_meet(rows: int):
    runner = bound([(2 * rows, 8)])
    wrong: list[int] = []

    def work(number: int) -> None:
        x = torch.full((rows, 8), float(number))
        for _ in range(300):
            if not bool((runner([x])[0] == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_failed_call_leaves_the_runner_usable():
    runner = bound([(6, 8)])
    with pytest.raises(Exception, match="shape"):
        runner([torch.ones(4, 8)])  # its result does not fit the memory that was promised
    assert torch.equal(runner([torch.ones(3, 8)])[0], torch.ones(6, 8))
