"""The micro models time arithmetic, not the slow paths of special values."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from smelt.base import SmeltError
from smelt.bench.micro import MICRO, find_micro


@pytest.mark.parametrize("name", MICRO)
def test_every_value_is_finite_and_normal(name: str):
    model, feeds = MICRO[name].build()
    final = model.graph.output[0].name
    model.graph.output.extend(
        helper.make_empty_tensor_value_info(node.output[0]) for node in model.graph.node if node.output[0] != final
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    for value in session.run(None, feeds):
        assert np.isfinite(value).all()
        sizes = np.abs(value[value != 0])
        assert sizes.min() > np.finfo(np.float32).tiny


def test_the_chain_has_twenty_nodes_with_exp_tanh_and_division():
    ops = [node.op_type for node in MICRO["chain"].build()[0].graph.node]
    assert len(ops) == 20
    assert {"Exp", "Tanh", "Div"} <= set(ops)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(SmeltError, match="chain"):
        find_micro("chian")
