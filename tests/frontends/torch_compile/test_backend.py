"""`torch.compile(backend="smelt")` from the outside: results, shapes, weights, fallbacks."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smelt.base import ConfigError, TorchError
from smelt.frontends.torch_compile import Listening, Record, TorchOptions, refresh

PLAIN = {"kernels": False}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).eval()


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def all_in_ort(record: Record) -> None:
    assert record.graphs
    for graph in record.graphs:
        assert graph.whole, (graph.fallback, graph.fallback_nodes)


@torch.no_grad()
def test_a_model_runs_whole_in_one_session():
    model = mlp()
    with Listening() as record:
        fast = torch.compile(model, backend="smelt", options=PLAIN)
        x = torch.randn(3, 8)
        close(fast(x), model(x))
    all_in_ort(record)
    assert len(record.graphs) == 1 and len(record.graphs[0].parts) == 1


@torch.no_grad()
def test_one_compilation_serves_all_sizes():
    model = mlp()
    with Listening() as record:
        fast = torch.compile(model, backend="smelt", dynamic=True, options=PLAIN)
        for rows in (3, 7, 64, 2):
            x = torch.randn(rows, 8)
            close(fast(x), model(x))
    assert len(record.graphs) == 1


@torch.no_grad()
def test_sizes_that_depend_on_data_stay_whole():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        runs, lengths = torch.unique_consecutive(x, return_counts=True)
        return torch.nonzero(x), x.nonzero().t().contiguous() * 2, runs, lengths, torch.bincount(lengths)

    with Listening() as record, torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        fast = torch.compile(function, backend="smelt", dynamic=True, fullgraph=True, options=PLAIN)
        for x in (torch.tensor([1, 1, 0, 3, 3, 3]), torch.tensor([0, 0, 7])):
            for found, wanted in zip(fast(x), function(x), strict=True):
                assert torch.equal(found, wanted)
    all_in_ort(record)


@torch.no_grad()
@pytest.mark.parametrize("rows", [0, 1])
def test_sizes_zero_and_one(rows: int):
    model = mlp()
    fast = torch.compile(model, backend="smelt", dynamic=True, options=PLAIN)
    x = torch.randn(rows, 8)
    close(fast(x), model(x))


@torch.no_grad()
def test_kernels_are_made_for_products_with_weights_that_stay_inputs():
    model = mlp()
    with Listening() as record:
        fast = torch.compile(model, backend="smelt", dynamic=True, options={"kernels": True})
        for rows in (3, 50):
            x = torch.randn(rows, 8)
            close(fast(x), model(x))
    (part,) = record.graphs[0].parts
    assert part.in_kernels == part.onnx_nodes and part.failures == 0


@torch.no_grad()
@pytest.mark.parametrize("kernels", [False, True])
def test_a_change_of_the_weights_is_seen_by_the_next_call(kernels: bool):
    model, x = mlp(), torch.randn(3, 8)
    fast = torch.compile(model, backend="smelt", options={"kernels": kernels})
    close(fast(x), model(x))
    model[0].weight.mul_(1.5)
    close(fast(x), model(x))
    model.load_state_dict(mlp().state_dict())
    close(fast(x), model(x))
    model[3].weight = nn.Parameter(torch.randn(4, 32))
    close(fast(x), model(x))


@torch.no_grad()
def test_a_write_behind_torchs_back_needs_refresh():
    model, x = mlp(), torch.randn(3, 8)
    fast = torch.compile(model, backend="smelt", options={"kernels": True})
    before = fast(x)
    model[0].weight.data.numpy()[:] *= 2
    refresh(model)
    after = fast(x)
    close(after, model(x))
    assert not torch.equal(before, after)


@torch.no_grad()
def test_frozen_parameters_are_read_again_after_refresh():
    model, x = mlp(), torch.randn(3, 8)
    fast = torch.compile(model, backend="smelt", options={"freeze": True, **PLAIN})
    before = fast(x)
    close(before, model(x))
    model[0].weight.mul_(2)
    assert torch.equal(fast(x), before)
    refresh(model)
    close(fast(x), model(x))


@torch.library.custom_op("smelt_tests::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(max=3.0)


@opaque.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Left(nn.Module):
    """A node in the middle that no converter takes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return opaque((x * 2).exp()).sin() + x.sum()


@torch.no_grad()
def test_a_node_that_cannot_be_converted_runs_in_torch_inside_the_same_graph():
    model, x = Left(), torch.randn(5, 3)
    with Listening() as record:
        close(torch.compile(model, backend="smelt", fullgraph=True, options=PLAIN)(x), model(x))
    (graph,) = record.graphs
    assert [node.target for node in graph.fallback_nodes] == ["smelt_tests.opaque.default"]
    assert graph.fallback_nodes[0].reason and len(graph.parts) == 2


@torch.no_grad()
def test_strict_raises_with_the_list_of_what_stays_in_torch():
    with pytest.raises(Exception, match="opaque") as raised:
        torch.compile(Left(), backend="smelt", options={"strict": True})(torch.randn(5, 3))
    causes = (raised.value, raised.value.__cause__, getattr(raised.value, "inner_exception", None))
    assert any(isinstance(cause, TorchError) for cause in causes)


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.cache[1] = x[0]
        self.cache.mul_(1.5)
        return self.linear(x) + self.cache.sum(), self.cache[1:3]


@torch.no_grad()
def test_buffers_are_written_and_views_of_them_stay_views():
    model = Writes()
    twin = copy.deepcopy(model)
    fast = torch.compile(twin, backend="smelt", options=PLAIN)
    for _ in range(3):
        x = torch.randn(2, 8)
        wanted, found = model(x), fast(x)
        close(found[0], wanted[0])
        close(twin.cache, model.cache)
        assert found[1].data_ptr() == twin.cache[1:3].data_ptr()


class Layouts(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x.t() * 2).exp()
        return y, y.t(), y.unsqueeze(0).expand(3, -1, -1), x[::2].cos(), y[:, :2]


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_have_the_strides_of_eager(dynamic: bool):
    model = Layouts()
    fast = torch.compile(model, backend="smelt", dynamic=dynamic, options=PLAIN)
    for rows in (4, 6):
        x = torch.randn(rows, 5)
        for found, wanted in zip(fast(x), model(x), strict=True):
            close(found, wanted)


@torch.no_grad()
def test_inputs_of_any_layout_and_dtype():
    def mixed(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        return torch.where(b, a + c.float(), d.to(a.dtype)) + e.float()

    fast = torch.compile(mixed, backend="smelt", options=PLAIN)
    a, d = torch.randn(6, 4).t(), torch.arange(24).reshape(4, 6)
    b, c, e = torch.randn(4, 6) > 0, torch.randn(4, 6).half(), torch.randn(4, 6).bfloat16()
    close(fast(a, b, c, d, e), mixed(a, b, c, d, e))


@torch.no_grad()
def test_bool_bf16_and_fp16_results():
    def typed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x > 0, x.half(), x.bfloat16(), x.to(torch.int8), x.double()

    x = torch.randn(3, 5) * 9
    for preallocate in (True, False):
        torch._dynamo.reset()
        fast = torch.compile(typed, backend="smelt", options={"preallocate": preallocate, **PLAIN})
        for found, wanted in zip(fast(x), typed(x), strict=True):
            assert found.dtype == wanted.dtype and torch.equal(found, wanted)


@torch.no_grad()
def test_nested_results_none_and_numbers():
    def nested(x: torch.Tensor) -> dict[str, object]:
        return {"a": [x + 1, None], "b": (x.shape[0], x), "c": 3.5}

    x = torch.randn(4, 2)
    found = torch.compile(nested, backend="smelt", dynamic=True, options=PLAIN)(x)
    assert found["b"][0] == 4 and found["b"][1] is x and found["a"][1] is None and found["c"] == 3.5
    close(found["a"][0], x + 1)


def test_a_failing_session_leaves_the_call_to_torch_and_says_so():
    def pick(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return F.embedding(at, table) * 2

    fast = torch.compile(pick, backend="smelt", options=PLAIN)
    table = torch.randn(5, 3)
    close(fast(table, torch.tensor([1, 4])), pick(table, torch.tensor([1, 4])))
    with pytest.warns(UserWarning, match="torch computed it"), pytest.raises(IndexError):
        fast(table, torch.tensor([1, 99]))


@torch.no_grad()
def test_check_compares_every_call():
    model, x = mlp(), torch.randn(3, 8)
    close(torch.compile(model, backend="smelt", options={"check": True, **PLAIN})(x), model(x))
    torch._dynamo.reset()
    wrong = torch.compile(model, backend="smelt", options={"check": True, "transforms": [_double_bias], **PLAIN})
    with pytest.raises(TorchError, match="SM-TORCH-002"):
        wrong(x)


def _double_bias(model: object) -> None:
    for node in model.graph:  # type: ignore[attr-defined]
        if node.op_type == "Gelu":
            node.replace_input_with(0, node.inputs[0].producer().inputs[0])


@torch.no_grad()
def test_intercept_hands_over_the_inputs_and_runs_the_original():
    seen: list[dict[str, object]] = []
    model, x = mlp(), torch.randn(3, 8)
    fast = torch.compile(model, backend="smelt", options={"intercept": seen.append})
    close(fast(x), model(x))
    assert len(seen) == 1 and any(value is x for value in seen[0].values())


def test_an_unknown_option_is_an_error_with_a_suggestion():
    with pytest.raises(Exception, match="meant to be 'freeze'"):
        torch.compile(mlp(), backend="smelt", options={"freze": True})(torch.randn(3, 8))


@pytest.mark.parametrize("bad", [{"freeze": 1}, {"threads": -1}, {"skip_passes": "x"}, {"check": "yes"}])
def test_a_value_of_the_wrong_kind_is_an_error(bad: dict[str, object]):
    from smelt.base import Config
    from smelt.frontends.torch_compile.options import read_options

    with pytest.raises(ConfigError, match="SM-CONFIG-007"):
        read_options(bad, Config.from_env({}))


def test_options_may_be_a_dataclass():
    model, x = mlp(), torch.randn(3, 8)
    from smelt.frontends.torch_compile import smelt_backend

    options = TorchOptions(kernels=False, threads=1)
    fast = torch.compile(model, backend=lambda graph, inputs: smelt_backend(graph, inputs, options=options))
    close(fast(x), model(x))


@torch.no_grad()
@pytest.mark.parametrize("calls", [60, pytest.param(500, marks=pytest.mark.full)])
def test_many_shapes_need_no_more_graphs_than_eager_and_no_more_memory(calls: int):
    class Counting:
        graphs = 0

        def __call__(self, graph: torch.fx.GraphModule, inputs: object) -> object:
            self.graphs += 1
            return graph

    model = nn.Sequential(nn.Linear(8, 256), nn.GELU(), nn.Linear(256, 8)).eval()
    sizes = [(1 + 7 * number) % 251 + 1 for number in range(calls // 10)]
    counting = Counting()
    plain = torch.compile(model, backend=counting)
    for size in sizes:
        plain(torch.randn(size, 8))
    torch._dynamo.reset()
    with Listening() as record:
        fast = torch.compile(model, backend="smelt", options=PLAIN)
        middle = 0
        for number in range(calls):
            fast(torch.randn(sizes[number % len(sizes)], 8))
            middle = _resident_bytes() if number == calls // 2 else middle
    assert len(record.graphs) <= counting.graphs
    assert _resident_bytes() - middle < 8 << 20


def _resident_bytes() -> int:
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
