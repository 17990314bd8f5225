"""`torch.compile` for tensors on a GPU, as far as it goes without one.

Dynamo and AOTAutograd trace fake tensors of a GPU. What they are compiled to is called with tensors of the CPU: on a
pretended GPU, whose launches the interpreter runs, or over a binding that writes down what it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from mock_driver import Mock, mock_library
from onnxruntime.capi import _pybind_state as native

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402

from smelt.codegen.triton.backend import CudaBackend, TritonRegionCode  # noqa: E402
from smelt.codegen.triton.kernel import TARGETS  # noqa: E402
from smelt.frontends.torch_compile import Listening, backend  # noqa: E402
from smelt.frontends.torch_compile.calls import frozen  # noqa: E402
from smelt.frontends.torch_compile.calls.on_device import tensors_of  # noqa: E402
from smelt.frontends.torch_compile.lower import boxed  # noqa: E402
from smelt.frontends.torch_compile.parts import sessions  # noqa: E402
from smelt.frontends.torch_compile.parts.part import copied  # noqa: E402
from smelt.runtime import Feed, Fetch, TorchRunner, session_for, torch_binding, torch_device  # noqa: E402
from smelt.runtime.torch_device import Gpu  # noqa: E402

PROVIDER = "CUDAExecutionProvider"
Shapes = Sequence[tuple[int, ...]]


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    torch_device.queue_of.cache_clear()
    sessions.forget_sessions()
    yield
    torch._dynamo.reset()
    torch_device.queue_of.cache_clear()
    sessions.forget_sessions()


class Traced:
    """Functions that were lowered, by kind, with the ATen graphs that they come from and the reports of them."""

    def __init__(self, reports: list[Any]) -> None:
        self.functions: dict[str, Callable[[list[Any]], Sequence[Any]]] = {}
        self.graphs: dict[str, Any] = {}
        self.reports = reports

    def __call__(self, *args: Any, kind: str = "inference") -> Sequence[Any]:
        return self.functions[kind](list(args))

    def values(self, kind: str = "inference") -> list[Any]:
        """What tracing knows of the arguments."""
        return [node.meta["val"] for node in self.graphs[kind].graph.nodes if node.op == "placeholder"]


def traced(
    function: Callable[..., Any], fakes: Callable[[], Sequence[Any]], options: Mapping[str, Any] | None = None,
    dynamic: bool | None = False,
) -> Traced:  # fmt: skip
    """What `torch.compile` makes of a call with the fakes, which lie on a GPU. The call itself has no memory to run on:
    it is given the graph."""
    original = backend.lower
    with pytest.MonkeyPatch.context() as patch, Listening() as record:
        made = Traced(record.graphs)

        def noted(graph: Any, kind: str, *rest: Any) -> Any:
            made.graphs[kind] = spare = copied(graph)
            made.functions[kind] = original(graph, kind, *rest)
            return boxed(spare)

        patch.setattr(backend, "lower", noted)
        patch.setattr(frozen, "lower", noted)
        with FakeTensorMode(allow_non_fake_inputs=True):
            torch.compile(function, backend="smelt", options=dict(options or {}), dynamic=dynamic)(*fakes())
    return made


def fakes_of(*shapes: tuple[int, ...], dtype: Any = None, device: str = "cuda") -> Callable[[], list[Any]]:
    return lambda: [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]


# --- a pretended GPU


@pytest.fixture
def mock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock(mock_library(tmp_path))
    monkeypatch.setenv("SMELT_CUDA_LIBRARY", str(made.path))
    monkeypatch.setenv("SMELT_DEVICE_STAND_IN", "cuda")
    monkeypatch.setattr(CudaBackend, "targets", TARGETS[:1])
    original = sessions.compile_to

    def noted(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        codes = [] if result.generated is None else result.generated.codes
        made.interpret({k.name: k for c in codes if isinstance(c, TritonRegionCode) for k in c.device.kernels})
        return result

    monkeypatch.setattr(sessions, "compile_to", noted)
    return made


KERNELS = {"kernels": True, "verify": False, "strict": True}


def test_kernels_of_a_gpu_compute_what_torch_does(mock: Mock):
    def function(x: Any, b: Any) -> Any:
        return torch.softmax(torch.nn.functional.silu(x + b), -1)

    made = traced(function, fakes_of((5, 64), (64,)), KERNELS)
    x, b = torch.randn(5, 64), torch.randn(64)
    (found,) = made(x, b)
    assert not mock.errors, mock.errors
    assert len(mock.launches) == 1
    torch.testing.assert_close(found, function(x, b), rtol=1e-5, atol=1e-6)
    (report,) = made.reports
    assert report.whole and report.parts[0].kernels


def test_sizes_stay_free(mock: Mock):
    def function(x: Any) -> Any:
        return torch.softmax(x * 2 + x.shape[0], -1)

    made = traced(function, fakes_of((5, 64)), KERNELS, dynamic=True)
    for rows, columns in ((7, 33), (1, 64)):
        x = torch.randn(rows, columns)
        numbers = iter((rows, columns))
        (found,) = made(*(x if isinstance(value, torch.Tensor) else next(numbers) for value in made.values()))
        torch.testing.assert_close(found, function(x), rtol=1e-5, atol=1e-6)
    assert len(mock.launches) == 2 and not mock.errors


def on_a_gpu(graph: Any) -> Any:
    """A graph of the CPU as one of a GPU: autograd's engine does not run for a device that torch was not built for."""
    moved = copied(graph)
    for node in moved.graph.nodes:
        node.meta["val"] = torch.utils._pytree.tree_map(to_gpu, node.meta.get("val"))
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda:0")}
    return moved


def to_gpu(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with value.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


def test_gradients_run_on_the_gpu_too(mock: Mock, monkeypatch: pytest.MonkeyPatch):
    lowered, devices = backend.lower, list[Any]()

    def moved(graph: Any, kind: str, settings: Any, *rest: Any) -> Any:
        graph = on_a_gpu(graph)
        devices.append({value.device.type for node in graph.graph.nodes for value in tensors_of(node)})
        return lowered(graph, kind, settings, *rest)

    def function(x: Any, w: Any) -> Any:
        return torch.nn.functional.silu(torch.nn.functional.layer_norm(x * w, (32,))).square()

    monkeypatch.setattr(backend, "lower", moved)
    x, w = torch.randn(6, 32, requires_grad=True), torch.randn(32)
    result = torch.compile(function, backend="smelt", options=KERNELS)(x, w)
    result.backward(torch.ones_like(result))
    assert x.grad is not None
    found, x.grad = x.grad, None
    wanted = function(x, w)
    wanted.backward(torch.ones_like(wanted))
    assert devices == [{"cuda"}, {"cuda"}]
    assert not mock.errors and len(mock.launches) >= 2
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found, x.grad, rtol=1e-4, atol=1e-5)


def test_frozen_parameters_of_a_gpu_become_constants(mock: Mock, monkeypatch: pytest.MonkeyPatch):
    """A fake has no memory to be frozen: the parameter of the test is the CPU's."""
    weight = torch.randn(32)
    monkeypatch.setattr(backend, "frozen_parameters", lambda graph, *_: {graph_inputs(graph)[1].name: weight})
    made = traced(lambda x, w: torch.softmax(x * w, -1), fakes_of((4, 32), (32,)), {**KERNELS, "freeze": True})
    x = torch.randn(4, 32)
    torch.testing.assert_close(made(x, None)[0], torch.softmax(x * weight, -1), rtol=1e-5, atol=1e-6)
    assert len(mock.launches) == 1 and not mock.errors


def graph_inputs(graph: Any) -> list[Any]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def test_what_stays_in_torch_stays_on_the_gpu(mock: Mock):
    """Random numbers are torch's; what is around them runs in sessions."""

    def function(x: Any) -> Any:
        return torch.softmax(torch.bernoulli(torch.sigmoid(x)) + x, -1)

    made = traced(function, fakes_of((4, 32)), {**KERNELS, "strict": False})
    (report,) = made.reports
    assert [n.target for n in report.fallback_nodes] == ["aten.bernoulli.default"] and len(report.parts) == 2


def test_without_triton_sessions_have_no_kernels(mock: Mock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "is_installed", lambda _name: False)
    made = traced(lambda x: torch.softmax(x + 1, -1), fakes_of((4, 32)), KERNELS)
    (report,) = made.reports
    (note,) = report.parts[0].notes
    assert "kernels for a GPU need Triton: pip install 'onnx-smelt[triton]'" in note and not report.parts[0].kernels
    x = torch.randn(4, 32)
    torch.testing.assert_close(made(x)[0], torch.softmax(x + 1, -1), rtol=1e-5, atol=1e-6)
    assert not mock.launches


# --- no provider


def test_without_the_provider_tensors_stay_in_torch_and_a_warning_says_why(monkeypatch: pytest.MonkeyPatch):
    if PROVIDER in onnxruntime.get_available_providers():
        pytest.skip("there is a CUDA provider here")
    with pytest.warns(UserWarning, match="onnxruntime has no CUDAExecutionProvider: pip install onnxruntime-gpu"):
        made = traced(lambda x: torch.softmax(x, -1), fakes_of((4, 32)))
    (report,) = made.reports
    assert not report.parts and report.fallback_nodes[0].reason == "a tensor on cuda"


def test_without_the_provider_strict_is_an_error():
    if PROVIDER in onnxruntime.get_available_providers():
        pytest.skip("there is a CUDA provider here")
    with pytest.raises(Exception, match="stay in torch: this onnxruntime has no CUDAExecutionProvider"):
        traced(lambda x: torch.softmax(x, -1), fakes_of((4, 32)), {"strict": True})


def test_providers_without_the_gpus_leave_it_to_torch(mock: Mock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SMELT_DEVICE_STAND_IN")
    monkeypatch.setattr(Gpu, "missing", lambda _self: "")
    with pytest.warns(UserWarning, match="the option providers names none for it"):
        traced(lambda x: torch.softmax(x, -1), fakes_of((4, 32)), {"providers": ["CPUExecutionProvider"]})


# --- what a real GPU's binding is told


class Stream:
    """Of the fake layer: notes what it waits for."""

    def __init__(self, log: list[Any], handle: int) -> None:
        self.log, self.cuda_stream = log, handle

    def wait_stream(self, other: Stream) -> None:
        self.log.append(("wait", self.cuda_stream, other.cuda_stream))


class FakeCuda:
    """`torch.cuda` and ONNX Runtime's GPU, over the host's memory: `log` has what happened in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        self.current, self.device, self.failing = Stream(self.log, 0), 0, False
        own = Stream(self.log, 77)
        layer = {
            "Stream": lambda device: own,
            "current_stream": lambda index: self.current,
            "current_device": lambda: self.device,
            "set_device": self.set_device,
            "stream": self.stream,
        }
        for name, value in layer.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(Gpu, "missing", lambda _self: "")
        patch.setattr(torch_binding, "_allocator_on", self.allocator)
        patch.setattr(native, "SessionIOBinding", self.binding)
        original = sessions.session_for

        def session_for(model: Any, library: Any, settings: Any) -> Any:
            self.log.append(("session", settings.providers))
            return original(
                model, library, sessions.SessionSettings(threads=1, external_data_dir=settings.external_data_dir)
            )

        patch.setattr(sessions, "session_for", session_for)

    def set_device(self, device: int) -> None:
        self.log.append(("device", device))
        self.device = device

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.log.append(("on", stream.cuda_stream))
        yield

    def allocator(self, device: str) -> Callable[..., Any]:
        def empty(sizes: Any, strides: Any, dtype: Any) -> Any:
            self.log.append(("empty", device, tuple(sizes), dtype))
            return torch.empty_strided(sizes, strides, dtype=dtype)

        return empty

    def binding(self, session: Any) -> Any:
        return Binding(self, session)

    def told(self, kind: str) -> list[Any]:
        return [entry for entry in self.log if entry[0] == kind]


class Binding(native.SessionIOBinding):
    """A binding of the CPU's that was told of a GPU."""

    def __init__(self, layer: FakeCuda, session: Any) -> None:
        super().__init__(session)
        self.layer = layer

    def _note(self, side: str, name: str, device: Any, *rest: Any) -> Any:
        self.layer.log.append((side, name, device.device_type(), device.device_id(), *rest))
        if device.device_type() == native.OrtDevice.cuda():
            self.layer.device = device.device_id()  # as a run leaves it
        return native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)

    def bind_input(self, name: str, device: Any, kind: Any, shape: Any, address: int) -> None:
        super().bind_input(name, self._note("in", name, device, kind, tuple(shape), address), kind, shape, address)

    def bind_output(self, name: str, device: Any, *rest: Any) -> None:
        super().bind_output(name, self._note("out", name, device, *rest), *rest)


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


PLAIN = {"kernels": False, "strict": True}
GPU = native.OrtDevice.cuda()


def test_a_binding_is_told_of_device_pointer_and_stream(layer: FakeCuda):
    made = traced(lambda x, y: torch.softmax(x + y, -1), fakes_of((4, 32), (32,), device="cuda:1"), PLAIN)
    ((_, providers),) = layer.told("session")
    assert providers == ((PROVIDER, {"device_id": "1", "user_compute_stream": "77"}), "CPUExecutionProvider")
    layer.log.clear()
    x, y = torch.randn(4, 32), torch.randn(32)
    (found,) = made(x, y)
    torch.testing.assert_close(found, torch.softmax(x + y, -1))
    assert {entry[2:] for entry in layer.told("in")} == {
        (GPU, 1, 1, (4, 32), x.data_ptr()), (GPU, 1, 1, (32,), y.data_ptr())
    }  # fmt: skip
    ((_, _, *where),) = layer.told("out")
    assert where == [GPU, 1, 1, (4, 32), found.data_ptr()]
    assert layer.told("empty") == [("empty", "cuda:1", (4, 32), torch.float32)]
    assert layer.told("wait") == [("wait", 77, 0), ("wait", 0, 77)]
    assert layer.log.index(("wait", 77, 0)) < layer.log.index(("wait", 0, 77)) == len(layer.log) - 1


def test_the_threads_device_is_what_it_was(layer: FakeCuda):
    made = traced(lambda x: torch.softmax(x, -1), fakes_of((4, 32), device="cuda:1"), PLAIN)
    layer.log.clear()
    enter = torch_device.queue_of(Gpu("cuda", 1)).enter()
    layer.device = 1
    torch_device.queue_of(Gpu("cuda", 1)).leave(enter)
    assert layer.told("device") == [("device", 0)]
    made(torch.randn(4, 32))


def test_calls_on_the_sessions_own_stream_wait_for_nothing(layer: FakeCuda):
    made = traced(lambda x: torch.softmax(x, -1), fakes_of((4, 32)), PLAIN)
    layer.current = Stream(layer.log, 77)
    layer.log.clear()
    made(torch.randn(4, 32))
    assert not layer.told("wait")


def test_each_call_is_ordered_with_the_stream_that_is_current_then(layer: FakeCuda):
    made = traced(lambda x: torch.softmax(x, -1), fakes_of((4, 32)), PLAIN)
    for handle in (5, 6):
        layer.current = Stream(layer.log, handle)
        layer.log.clear()
        made(torch.randn(4, 32))
        assert layer.told("wait") == [("wait", 77, handle), ("wait", handle, 77)]


def test_a_failed_run_is_ordered_too(layer: FakeCuda):
    def fakes() -> list[Any]:
        return [torch.empty(5, 8, device="cuda"), torch.empty(4, dtype=torch.int64, device="cuda")]

    made = traced(lambda w, i: torch.nn.functional.embedding(i, w) + 1, fakes, PLAIN)
    layer.log.clear()
    places = [torch.randn(5, 8), torch.tensor([0, 1, 2, 99])]
    order = [places[0] if value.dtype.is_floating_point else places[1] for value in made.values()]
    with pytest.raises(Exception, match="out of data bounds"):
        made(*order)
    assert layer.told("wait") == [("wait", 77, 0), ("wait", 0, 77)]


def test_numbers_and_scalars_of_the_cpu_are_bound_there(layer: FakeCuda):
    def fakes() -> list[Any]:
        return [torch.empty(4, 32, device="cuda"), torch.empty((), device="cpu")]

    made = traced(lambda x, s: torch.softmax(x * s, -1), fakes, PLAIN)
    layer.log.clear()
    x, s = torch.randn(4, 32), torch.tensor(2.5)
    torch.testing.assert_close(made(x, s)[0], torch.softmax(x * s, -1))
    assert {entry[4:6]: entry[2] for entry in layer.told("in")} == {(1, (4, 32)): GPU, (1, ()): native.OrtDevice.cpu()}


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", 16), ("float16", 10), ("int64", 7), ("bool", 9)])
def test_every_type_goes_by_address(layer: FakeCuda, dtype: str, number: int):
    kind = getattr(torch, dtype)
    made = traced(lambda x: torch.cat([x, x]).flip(0), fakes_of((4, 3), dtype=kind), PLAIN)
    layer.log.clear()
    x = (torch.randn(4, 3) * 3).to(kind)
    (found,) = made(x)
    assert found.dtype == kind and torch.equal(found, torch.cat([x, x]).flip(0))
    assert layer.told("in")[0][4] == layer.told("out")[0][4] == number


def test_results_of_unknown_sizes_are_copies_made_on_the_sessions_stream(layer: FakeCuda):
    text = '<ir_version: 9, opset_import: ["" : 21]> g (float[4,3] x) => (int64[2,n] i, bool[4,3] b)'
    model = onnx.parser.parse_model(f"{text} {{ z = Constant<value_float = 0.0>() b = Greater(x, z) i = NonZero(b) }}")
    session, gpu = session_for(model.SerializeToString()), Gpu("cuda", 0)
    call = TorchRunner(session, [Feed("x", 0, "float32")], [Fetch("i", "int64"), Fetch("b", "bool")], gpu=gpu)
    held: list[Any] = []
    for seed in (1, 2):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        held.append((x, call([x])))
    for x, (places, above) in held:
        assert torch.equal(places.t(), torch.nonzero(x > 0)) and torch.equal(above, x > 0)
    assert [entry for entry in layer.log if entry[0] in ("wait", "on")] == [
        ("wait", 77, 0), ("on", 77), ("on", 77), ("wait", 0, 77)
    ] * 2  # fmt: skip
    assert [entry[2:] for entry in layer.told("out")] == [(GPU, 0)] * 4  # the session makes them, there


def test_a_tensor_of_another_gpu_stays_in_torch(layer: FakeCuda):
    def fakes() -> list[Any]:
        return [torch.empty(4, 32, device="cuda:0"), torch.empty(4, 32, device="cuda:1")]

    made = traced(lambda x, y: (torch.softmax(x, -1), torch.softmax(y, -1)), fakes, {"kernels": False})
    (report,) = made.reports
    assert [n.reason for n in report.fallback_nodes] == ["a tensor on cuda, others are on cuda:0"]
    assert len(report.parts) == 1


def test_what_moves_tensors_between_devices_stays_in_torch(layer: FakeCuda):
    made = traced(lambda x: torch.softmax(x, -1).to("cpu"), fakes_of((4, 32)), {"kernels": False})
    (report,) = made.reports
    assert len(report.parts) == 1 and len(report.fallback_nodes) == 1


def test_providers_of_the_user_keep_their_options(layer: FakeCuda):
    given = (("CUDAExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"}), "CPUExecutionProvider")
    own, host = Gpu("cuda", 2).providers(given)
    assert own[1] == {"arena_extend_strategy": "kSameAsRequested", "device_id": "2", "user_compute_stream": "77"}
    assert host == "CPUExecutionProvider"
