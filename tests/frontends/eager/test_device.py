"""The device behaves as PyTorch's own do: creation, views, copies, saving, errors."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import smelt.frontends.eager as eager  # noqa: E402
from smelt.base.errors import ConfigError  # noqa: E402


@pytest.fixture
def x() -> Any:
    torch.manual_seed(0)
    return torch.randn(3, 4)


@pytest.fixture
def o(x: Any) -> Any:
    return x.to("ort")


def test_a_tensor_goes_there_and_back(x: Any, o: Any) -> None:
    assert o.device == torch.device("ort", 0) and o.is_ort and x.ort().is_ort
    assert torch.equal(o.cpu(), x)
    assert "device='ort:0'" in repr(o)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.complex64]
)
def test_every_dtype_goes_there(x: Any, dtype: Any) -> None:
    assert torch.equal((x > 0).to(dtype).to("ort").cpu(), (x > 0).to(dtype))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(2, 3, device=d), lambda d: torch.full((2,), 7, device=d),
        lambda d: torch.arange(5, device=d),
        lambda d: torch.tensor([[1, 2], [3, 4]], device=d), lambda d: torch.eye(3, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d), lambda d: torch.ones(0, 3, device=d),
        lambda d: torch.tensor(2.5, device=d), lambda d: torch.kaiser_window(5, device=d),
    ],
)  # fmt: skip
def test_factories(make: Any) -> None:
    assert make("ort").device.type == "ort"
    assert torch.equal(make("ort").cpu(), make("cpu"))


def test_random_numbers_are_the_cpus() -> None:
    torch.manual_seed(3)
    wanted = torch.randn(5), torch.rand(4), torch.randint(0, 9, (3,)), torch.randperm(6), torch.empty(3).uniform_()
    torch.ort.manual_seed(3)
    got = (
        torch.randn(5, device="ort"), torch.rand(4, device="ort"), torch.randint(0, 9, (3,), device="ort"),
        torch.randperm(6, device="ort"), torch.empty(3, device="ort").uniform_(),
    )  # fmt: skip
    assert all(torch.equal(g.cpu(), w) for g, w in zip(got, wanted, strict=True))


def test_writes_through_views_reach_the_base(x: Any, o: Any) -> None:
    for tensor in (x, o):
        tensor[1:, ::2].zero_()
        tensor.t()[0].add_(1)
        tensor.view(-1)[5] = 9
        tensor[tensor > 1] *= 2
    assert torch.equal(o.cpu(), x)
    assert o[0].untyped_storage().data_ptr() == o.untyped_storage().data_ptr()
    assert o[0]._base is o


def test_views_of_other_types_share_memory(o: Any) -> None:
    bits = o.view(torch.int32)
    bits.zero_()
    assert o.cpu().abs().max() == 0
    pairs = torch.view_as_real(torch.ones(2, dtype=torch.complex64, device="ort"))
    assert pairs.shape == (2, 2)


def test_conjugates_are_resolved() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(z.to("ort").conj().resolve_conj().cpu(), z.conj().resolve_conj())
    assert torch.equal((z.to("ort").conj() + 1).cpu(), z.conj() + 1)


@pytest.mark.parametrize("form", ["add", "matmul", "in-place", "where", "index"])
def test_operands_of_two_devices_are_refused(x: Any, o: Any, form: str) -> None:
    _ = o + o, o @ o.t()  # known programs must not hide the error
    calls = {
        "add": lambda: o + x, "matmul": lambda: o @ x.t(), "in-place": lambda: o.add_(x),
        "where": lambda: torch.where(o > 0, o, x), "index": lambda: x[torch.tensor([0], device="ort")],
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="same device"):
        calls[form]()


def test_a_cpu_scalar_is_welcome(x: Any, o: Any) -> None:
    assert torch.equal((o * torch.tensor(2.0)).cpu(), x * 2)


def test_results_promote_as_on_the_cpu(o: Any) -> None:
    i = torch.arange(4, device="ort")
    assert (i + 1).dtype == torch.int64 and (i + 1.5).dtype == torch.float32 and (i / 2).dtype == torch.float32
    assert (o.double() + o).dtype == torch.float64 and (o > 0).dtype == torch.bool
    with pytest.raises(RuntimeError, match="can't be cast"):
        i.add_(1.5)


def test_errors_are_the_cpus(x: Any, o: Any) -> None:
    for call in (lambda t: t @ t, lambda t: t + t[:, :3], lambda t: t.view(5), lambda t: t.sum(7)):
        with pytest.raises((RuntimeError, IndexError)) as on_cpu:
            call(x)
        with pytest.raises(type(on_cpu.value)) as on_ort:
            call(o)
        assert str(on_ort.value).splitlines()[0] == str(on_cpu.value).splitlines()[0]


def test_copies_and_pickles(o: Any) -> None:
    for twin in (copy.deepcopy(o), copy.copy(o), pickle.loads(pickle.dumps(o)), o.clone()):
        assert twin.device.type == "ort" and torch.equal(twin, o)
    shared = {"a": o, "b": o[0]}
    twins = copy.deepcopy(shared)
    twins["b"].zero_()
    assert twins["a"][0].abs().sum() == 0 and o[0].abs().sum() > 0


def test_saving_and_loading(o: Any) -> None:
    file = io.BytesIO()
    torch.save({"o": o, "view": o[1]}, file)
    for where, expected in ((None, "ort"), ("cpu", "cpu"), ("ort", "ort")):
        file.seek(0)
        back = torch.load(file, map_location=where)
        assert back["o"].device.type == expected and torch.equal(back["o"].cpu(), o.cpu())
        assert back["view"].untyped_storage().data_ptr() == back["o"].untyped_storage().data_ptr()
    file = io.BytesIO()
    torch.save(o.cpu(), file)
    file.seek(0)
    assert torch.load(file, map_location="ort").device.type == "ort"


def test_modules_move() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to("ort")
    assert {t.device.type for t in module.state_dict().values()} == {"ort"}
    fresh = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    fresh.load_state_dict(module.state_dict())
    assert fresh[0].weight.device.type == "cpu" and torch.equal(fresh[0].weight, module[0].weight.cpu())
    assert module.cpu()[0].weight.device.type == "cpu"
    assert nn.Linear(2, 2).ort().weight.is_ort


def test_the_module_answers() -> None:
    assert (
        torch.ort.is_available()
        and torch.ort.current_device() == 0
        and torch.ort.get_device_name().endswith("CPUExecutionProvider")
    )
    assert torch.ort.get_device_capability()["provider"] == torch.ort.get_device_properties().provider
    state = torch.ort.get_rng_state_all()
    first = torch.rand(2, device="ort")
    torch.ort.set_rng_state_all(state)
    assert torch.equal(first, torch.rand(2, device="ort"))
    with (
        torch.ort.stream(torch.ort.current_stream()),
        torch.ort.device_of(first),
        torch.random.fork_rng(device_type="ort"),
    ):
        first.record_stream(torch.ort.default_stream())
        torch.ort.synchronize()
    assert torch.ort.exchange_device(-1) == 0
    with pytest.raises(NotImplementedError):
        torch.Generator("ort")
    generator = torch.Generator().manual_seed(4)
    got = torch.rand(3, device="ort", generator=generator)
    assert torch.equal(got.cpu(), torch.rand(3, generator=generator.manual_seed(4)))


def test_default_device() -> None:
    torch.set_default_device("ort")
    try:
        assert torch.zeros(2).device.type == "ort" and nn.Linear(2, 2).weight.device.type == "ort"
    finally:
        torch.set_default_device(None)
    with torch.device("ort"):
        assert torch.ones(2).device.type == "ort"


def test_out_is_resized_only_when_empty(x: Any, o: Any) -> None:
    empty = torch.empty(0, device="ort")
    assert torch.add(o, o, out=empty) is empty and empty.shape == (3, 4)
    fits = torch.empty(3, 4, device="ort")
    assert torch.equal(torch.mul(o, 2, out=fits).cpu(), x * 2)
    with pytest.raises(RuntimeError, match="not resized"):
        torch.add(o, o, out=torch.empty(7, device="ort"))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(o, o, out=torch.empty(3, 4, dtype=torch.int64, device="ort"))
    with pytest.raises(RuntimeError, match="same device"):
        torch.add(o, o, out=torch.empty(3, 4))


@pytest.mark.parametrize("rows", [2, 4])
def test_out_that_overlaps_an_argument_is_refused_in_the_words_of_the_cpu(rows: int) -> None:
    for device in ("cpu", "ort"):
        base = torch.ones(4, 6, device=device)
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
            torch.cat([base, base], out=base[:rows])
        assert base.cpu().tolist() == torch.ones(4, 6).tolist()


def test_asking_for_the_device_keeps_nothing_alive() -> None:
    class Thing:
        pass

    def ask() -> weakref.ref[Thing]:
        thing = Thing()
        torch.ort.is_available(), torch.ort.device_count()
        return weakref.ref(thing)

    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()


def test_a_storage_grows_for_all_its_tensors() -> None:
    base = torch.arange(4.0, device="ort")
    view = base[1:3]
    base.resize_(1000)[1:] = 7
    assert view.tolist() == [7, 7] and view.data_ptr() == base.data_ptr() + 4
    base.untyped_storage().resize_(0)
    base.untyped_storage().resize_(4000)
    assert view.fill_(3)[0].item() == base[1].item() == 3
    eager.to_ort_value(base)
    with pytest.raises(RuntimeError, match="not resizable"):
        base.resize_(2000)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[1:].add_(x[:-1]), lambda x: torch.add(x[1:], 1, out=x[:-1]), lambda x: torch.add(x, x, out=x),
        lambda x: torch.cat([x[:2], x[2:3]], out=x[1:4]), lambda x: x[:1].expand(3).add_(1),
        lambda x: torch.aminmax(x, out=(x.double(), x.double())), lambda x: torch.add(x, 1, out=x.double()),
        lambda x: x[:1].clone().addbmm_(x.view(1, 2, 3), x.view(1, 3, 2)),
        lambda x: x[1].clone().addbmm_(x.view(1, 2, 3), x.view(1, 3, 2), beta=0.5),
        lambda x: torch.linspace(x[0], 1, 0, device=x.device),
        lambda x: torch.pow(x.long(), torch.arange(40, 46, device=x.device)),
        lambda x: torch.bucketize(x, x.view(2, 3)), lambda x: x.masked_scatter(x.byte(), x),
        lambda x: x.to("cpu", non_blocking=True).to(x.device),
        lambda x: torch.autograd.grad(x.requires_grad_().clone().sgn().sum(), x)[0],
        lambda x: torch.nn.functional.interpolate(x.view(1, 1, 6), scale_factor=1.7, mode="linear"),
    ],
)  # fmt: skip
def test_corners_are_the_cpus(call: Any) -> None:
    for _ in range(2):
        results: list[Any] = []
        for device in ("cpu", "ort"):
            try:
                results.append(call(torch.arange(6.0, device=device)))
            except Exception as error:
                results.append(error)
        wanted, got = results
        if isinstance(wanted, Exception):
            assert type(got) is type(wanted) and str(got) == str(wanted)
        else:
            assert got.device.type == "ort"
            torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to_sparse() + x.to_sparse(), lambda x: x.to_sparse_csr() * 2, lambda x: x.to_sparse().mul_(3),
        lambda x: torch.sparse.mm(x.to_sparse(), x), lambda x: x.to_sparse().coalesce().values(),
        lambda x: torch.sparse_coo_tensor([[0], [1]], [2.0], device=x.device), lambda x: x.to_sparse().sum(),
    ],
)  # fmt: skip
def test_sparse_tensors_are_the_cpus(call: Any) -> None:
    wanted, got = (call(torch.tensor([[0.0, 1.0], [2.0, 0.0]], device=device)) for device in ("cpu", "ort"))
    assert got.is_ort and got.layout == wanted.layout
    torch.testing.assert_close(got.to_dense().cpu(), wanted.to_dense())


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_of_bags_of_words(sparse: bool) -> None:
    grads: list[Any] = []
    for device in ("cpu", "ort"):
        weight = torch.ones(5, 3, device=device, requires_grad=True)
        words, starts = torch.tensor([4, 1, 1, 0], device=device), torch.tensor([0, 2], device=device)
        bags = nn.functional.embedding_bag(words, weight, starts, mode="sum", sparse=sparse)
        (bags * torch.arange(6.0, device=device).view(2, 3)).sum().backward()
        grads.append(weight.grad.to_dense().cpu())
    assert torch.equal(*grads)


def test_results_in_lists_are_written(o: Any, x: Any) -> None:
    outs = [torch.empty(2, 4, device="ort"), torch.empty(0, device="ort")]
    assert torch.split_with_sizes_copy(o, [2, 1], out=outs) is None
    assert torch.equal(outs[0].cpu(), x[:2]) and torch.equal(outs[1].cpu(), x[2:])


def test_zero_elements_and_scalars() -> None:
    empty = torch.ones(0, 3, device="ort")
    assert (
        (empty + 1).shape == (0, 3)
        and empty.sum().item() == 0
        and (empty @ torch.ones(3, 2, device="ort")).shape == (0, 2)
    )
    assert (torch.tensor(2.0, device="ort") * 3).item() == 6


def test_fallbacks_are_counted(o: Any) -> None:
    eager.reset_counts()
    torch.linalg.svd(o)
    _ = o + 1
    assert any("svd" in f.op and f.count == 1 and f.reason for f in eager.fallbacks())
    assert eager.natives()["aten.add.Tensor"] == 1


def test_a_list_of_results_stays_a_list(o: Any, x: Any) -> None:
    for count in (1, 2):
        got, wanted = torch.unsafe_split(o, count), torch.unsafe_split(x, count)
        assert len(got) == len(wanted) and all(torch.equal(g.cpu(), w) for g, w in zip(got, wanted, strict=True))
    (whole,) = torch.unsafe_chunk(o, 1)
    assert torch.equal(whole.cpu(), x)


def test_one_program_serves_all_sizes() -> None:
    from smelt.frontends.eager.kernels import native_ops

    _ = torch.ones(2, 3, device="ort").sinh()
    programs = native_ops["aten.sinh.default"].programs
    for size in range(4, 40):
        given = torch.rand(size, size + 1)
        assert torch.allclose(given.to("ort").sinh().cpu(), given.sinh())
    kept = programs._by_kind.values()  # pyright: ignore[reportPrivateUsage]
    assert [len(of_a_kind) for of_a_kind in kept] == [1]


def test_other_sessions_of_the_process_are_left_alone(o: Any) -> None:
    import onnxruntime
    from onnx import TensorProto, helper

    _ = o + o
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    assert session.run(None, {"x": torch.ones(2).numpy()})[0].tolist() == [-1, -1]


def test_an_index_must_be_set_up() -> None:
    with pytest.raises(ConfigError, match=r"set_device\(5"):
        torch.zeros(2, device="ort:5")
    eager.set_device(2, "CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})
    try:
        second = torch.ones(2, device="ort:2")
        assert (second + second).device == torch.device("ort", 2)
        with pytest.raises(RuntimeError, match="same device"):
            _ = second + torch.ones(2, device="ort")
        with torch.ort.device(2):
            assert torch.ones(1, device="ort").device.index == 2
    finally:
        eager.devices()
    with pytest.raises(ConfigError, match="CPUExecutionProvider"):
        eager.set_device(3, "NoSuchProvider")


def test_ort_values_share_memory(o: Any) -> None:
    value = eager.to_ort_value(o)
    assert value.shape() == [3, 4]
    back = eager.from_ort_value(value)
    back.zero_()
    assert o.cpu().abs().sum() == 0
    flags = eager.from_ort_value(eager.to_ort_value(o > 0))
    assert flags.dtype == torch.bool
    with pytest.raises(ConfigError, match="never set up"):
        eager.from_ort_value(value, index=5)


def test_no_import_is_needed() -> None:
    """PyTorch loads the device by the package's entry point, and does not choose it before someone names it."""
    code = (
        "import torch; before = torch.accelerator.is_available(), torch.accelerator.device_count();"
        "plain = torch.nn.DataParallel(torch.nn.Linear(2, 2))(torch.ones(1, 2)).device.type;"
        "named = torch.ort.is_available(), torch.ort.device_count(); x = torch.ones(2, device='ort');"
        "print((x + x).cpu().tolist(), before, plain, named, torch.accelerator.is_available())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "[2.0, 2.0] (False, 0) cpu (True, 1) True", done.stderr


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_modules_run_and_learn(kind: Any, bias: bool) -> None:
    torch.manual_seed(0)
    plain = kind(3, 4, bias=bias)
    moved = copy.deepcopy(plain).to("ort")
    x = torch.randn(2, 3) if kind in (nn.LSTMCell, nn.GRUCell) else torch.randn(5, 2, 3)
    wanted, found = plain(x), moved(x.to("ort"))
    first, other = (r[0] if isinstance(r, tuple) else r for r in (wanted, found))
    torch.testing.assert_close(other.cpu(), first)
    first.square().sum().backward()
    other.square().sum().backward()
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(moved.get_parameter(name).grad.cpu(), weight.grad, msg=name)
    with torch.inference_mode():
        again = moved(x.to("ort"))
        torch.testing.assert_close((again[0] if isinstance(again, tuple) else again).cpu(), first.detach())


def test_a_bool_is_not_subtracted() -> None:
    number = torch.ones(2, device="ort")
    flag = number.bool()
    for call in (lambda: number - True, lambda: flag - flag, lambda: number - flag, lambda: torch.rsub(number, True)):
        with pytest.raises(RuntimeError, match="Subtraction"):
            call()
