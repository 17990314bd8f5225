"""A second compilation of the same model, in another process, finds the library of the first."""

from __future__ import annotations

import pytest

from smelt.base import Config
from smelt.bench import micro_case, zoo
from smelt.bench.compile_time import measure_compile, measure_file


def test_a_small_model_is_compiled_once_and_found_then(config: Config):
    times = measure_file("softmax", micro_case("softmax", config).model)
    assert not times.cold.found
    assert times.cached.found
    assert times.cached.cpu_s < times.cold.cpu_s
    assert {"import", "build"} <= times.cold.stages.keys()


@pytest.mark.full
@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_transformer_is_compiled_once_and_found_then(config: Config, name: str):
    for package in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(package)
    assert measure_compile(name, config, "tiny").cached.found
