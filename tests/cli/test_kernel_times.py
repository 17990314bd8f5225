"""Time by kernel, from a library that is built for profiling."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from smelt.base.config import Config
from smelt.cli.kernel_times import launch_times
from smelt.cli.profiling import bound_us
from smelt.pipeline import Options, compile_to
from smelt.report import Peaks
from smelt.runtime import SessionSettings
from smelt.toolchain.elf import read_symbols


@pytest.fixture
def proto() -> onnx.ModelProto:
    """A large product after a small map: two launches of very different cost."""
    weight = numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    nodes = [helper.make_node("ReduceMax", ["x"], ["a"], axes=[0]), helper.make_node("MatMul", ["x", "w"], ["b"])]
    nodes.append(helper.make_node("Sub", ["b", "a"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_each_launch_is_timed_and_the_artifact_has_no_clocks(proto: onnx.ModelProto, tmp_path: Path) -> None:
    config = Config.from_env({"SMELT_STRICT": "1"}).with_(cache_dir=tmp_path / "cache", log="quiet")
    result = compile_to(proto, tmp_path / "out", Options(levels=("v2",), force=True, verify=False), config)
    assert result.generated is not None and result.library is not None
    feeds = {"x": np.random.default_rng(0).standard_normal((512, 256), np.float32)}
    started = time.perf_counter()
    settings = SessionSettings(threads=1)
    found = launch_times(result.artifact.model_path, result.generated, result.library, feeds, settings, config)
    elapsed_us = (time.perf_counter() - started) * 1e6
    (entry,) = result.generated.source.entries
    spent = found[entry.name]
    assert len(spent) == 1 + max(kernel.launch for kernel in entry.kernels)
    assert all(us > 0 for us in spent) and 50 < sum(spent) < elapsed_us
    product = next(kernel.launch for kernel in entry.kernels if kernel.kind == "gemm")
    assert spent[product] == max(spent)
    assert not any("ticks" in name or "clock" in name for name in read_symbols(result.library.path).exported)


def test_the_least_time_of_a_product_counts_its_terms_once(proto: onnx.ModelProto, tmp_path: Path) -> None:
    config = Config.from_env({"SMELT_STRICT": "1"}).with_(cache_dir=tmp_path / "cache", log="quiet")
    result = compile_to(proto, tmp_path / "out", Options(levels=("v2",), force=True, verify=False), config)
    assert result.generated is not None
    kernel = next(
        code.work[place]
        for code in result.generated.codes
        for place, info in enumerate(code.info)
        if info.kind == "gemm"
    )
    by_flops, by_bytes = Peaks(1.0, 1e9, 1e9), Peaks(1e12, 1.0, 1.0)
    terms, read = 2 * 512 * 256 * 256, 4 * (2 * 512 * 256 + 256 * 256)
    assert terms <= (bound_us(*kernel, {"d:n": 512}, by_flops) or 0.0) * 1e3 < 1.1 * terms
    assert read <= (bound_us(*kernel, {"d:n": 512}, by_bytes) or 0.0) * 1e3 < 1.1 * read
