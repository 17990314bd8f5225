"""What a second compilation, of the same model or of another one, finds in the cache."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from smelt.base import Config
from smelt.bench import micro_case, zoo
from smelt.bench.compile_time import measure_compile, measure_file, write_layers


def test_a_small_model_is_compiled_once_and_found_then(config: Config):
    times = measure_file("softmax", micro_case("softmax", config).model)
    assert not times.cold.found
    assert times.cached.found
    assert times.cached.cpu_s < times.cold.cpu_s
    assert {"import", "build"} <= times.cold.stages.keys()


@pytest.mark.full
def test_a_second_model_finds_the_units_that_no_model_changes(tmp_path: Path):
    """Compiling only the model's own units takes a fraction of what the first model takes."""
    first, model = tmp_path / "first.onnx", tmp_path / "model.onnx"
    write_layers(first)
    write_layers(model)
    changed = onnx.load(model)
    changed.graph.node.append(onnx.helper.make_node("Relu", ["product"], ["positive"]))
    changed.graph.output[1].name = "positive"
    onnx.save(changed, model)
    times = measure_file("layers", model, first)
    assert times.second is not None and not times.second.found
    assert times.second.cpu_s < 0.8 * times.cold.cpu_s


def test_a_chain_is_compiled_whole(config: Config):
    times = measure_compile("chain:200", config)
    assert times.model == "chain:200" and times.cached.found


@pytest.mark.full
@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_transformer_is_compiled_once_and_found_then(config: Config, name: str):
    for package in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(package)
    assert measure_compile(name, config, "tiny").cached.found
