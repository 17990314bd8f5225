"""Tensors on disk and pages that are dropped: the contents stay, and a compilation holds weights once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from smelt.ir import load, spilled

WIDTH = 1024
COMPILE = """
import json, resource, sys
import smelt
made = smelt.compile(sys.argv[1], sys.argv[2], force=True, timing=False, levels=("v2",))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, "all": not made.result.plan.fallbacks}))
"""


def written(folder: Path, layers: int) -> Path:
    """Products one after the other, their weights in a file beside the model."""
    folder.mkdir()
    held, nodes = [], []
    with (folder / "weights").open("wb") as file:
        for i in range(layers):
            weights = np.random.default_rng(i).standard_normal((WIDTH, WIDTH), np.float32) / np.float32(32)
            tensor = onnx.TensorProto(name=f"w{i}", data_type=1, dims=[WIDTH, WIDTH], data_location=1)
            fields = {"location": "weights", "offset": str(file.tell()), "length": str(weights.nbytes)}
            for key, text in fields.items():
                tensor.external_data.add(key=key, value=text)
            file.write(weights.tobytes())
            held.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]))
    x, y = (helper.make_tensor_value_info(name, 1, ["rows", WIDTH]) for name in ("h0", f"h{layers}"))
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("size", [10, spilled.LEAST_BYTES + 7])
def test_a_spilled_tensor_has_the_same_contents(dtype: type, size: int) -> None:
    array = (np.arange(size) % 251).astype(dtype)
    tensor = spilled.spilled(array, "t")
    assert isinstance(tensor, spilled.SpilledTensor) == (array.nbytes >= spilled.LEAST_BYTES)
    for _ in range(2):
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.tobytes() == array.tobytes()
        spilled.drop_pages(tensor)


def test_a_full_disk_keeps_the_tensor_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError("no room")

    monkeypatch.setattr(spilled.tempfile, "TemporaryFile", full)
    array = np.ones(spilled.LEAST_BYTES, np.float32)
    tensor = spilled.spilled(array, "t")
    assert not isinstance(tensor, spilled.SpilledTensor)
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_mapped_weights_are_read_again_after_their_pages_were_dropped(tmp_path: Path) -> None:
    model = load.load_model(written(tmp_path / "m", 2))
    value = model.graph.initializers["w1"]
    before = np.array(value.const_value.numpy())
    spilled.drop_all_pages(model)
    np.testing.assert_array_equal(value.const_value.numpy(), before)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_compilation_holds_weights_once(tmp_path: Path) -> None:
    """By the difference of two sizes: what Python and its libraries take is in both."""
    peaks = []
    for layers in (8, 40):
        source = written(tmp_path / str(layers), layers)
        command = [sys.executable, "-c", COMPILE, str(source), str(tmp_path / f"artifact{layers}")]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert found["all"]
        peaks.append(found["peak"])
    assert peaks[1] - peaks[0] < 1.3 * 32 * WIDTH * WIDTH * 4
