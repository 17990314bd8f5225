"""The product models hold what their names say, and no two weights that a pass could merge."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from smelt.base.config import Config
from smelt.bench.cases import suite_cases
from smelt.bench.products import PRODUCTS


@pytest.mark.parametrize("name", ["128x128x512", "37x768x770"])
def test_weights_differ_and_values_keep_their_size(name: str):
    model, feeds = PRODUCTS[name].build()
    x = feeds["x"].astype(np.float64)
    weights = [numpy_helper.to_array(w) for w in model.graph.initializer]
    assert len({w.tobytes() for w in weights}) == len(model.graph.node)
    for weight in weights:
        x = x @ weight
    assert 0.2 < x.std() < 5


def test_the_suite_takes_models_by_name(tmp_path):
    (case,) = suite_cases("gemm", Config(cache_dir=tmp_path), only=["37x768x770"])
    assert case.model.is_file()
    assert case.feeds["x"].shape == (37, 768)
