"""Models over 2 GB: external data is streamed, and never held in memory twice."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from travel import run

import smelt

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
ROWS, WIDTH = 600_000, 1024  # 2.46 GB of floats
USED = (0, 7, ROWS - 1)

COMPILE = """
import json, resource, sys
import smelt
made = smelt.compile(sys.argv[1], sys.argv[2], force=True, verify=sys.argv[3] == "1", levels=("v2",))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
anonymous = int([line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")][0]) * 1024
print(json.dumps({"peak": peak, "anonymous": anonymous, "kernels": made.coverage.in_kernels}))
"""
RUN = """
import json, sys
import numpy as np, onnxruntime as ort
folder = sys.argv[1]
manifest = json.load(open(folder + "/manifest.json"))
options = ort.SessionOptions()
options.register_custom_ops_library(folder + "/" + manifest["library"]["file"])
live = ort.InferenceSession(folder + "/model.onnx", options, providers=["CPUExecutionProvider"])
rows = np.array(json.loads(sys.argv[2]))
y = live.run(None, {"i": rows})[0]
anonymous = int([line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")][0]) * 1024
print(json.dumps({"y": y[:, :3].tolist(), "anonymous": anonymous}))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = tanh(table[i] + 1) * 0.5 with a table that is a file of holes but for a few rows."""
    folder = tmp_path_factory.mktemp("large")
    if shutil.disk_usage(folder).free < 12e9:
        pytest.skip("needs 12 GB of disk")
    size = ROWS * WIDTH * 4
    with (folder / "table.bin").open("wb") as file:
        file.truncate(size)
        for row in USED:
            file.seek(row * WIDTH * 4)
            file.write(row_of(row).tobytes())
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[ROWS, WIDTH], data_location=1)
    for key, value in (("location", "table.bin"), ("offset", "0"), ("length", str(size))):
        table.external_data.add(key=key, value=value)
    scalars = [helper.make_tensor(name, TensorProto.FLOAT, [], [v]) for name, v in (("one", 1.0), ("half", 0.5))]
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["g"], axis=0),
        helper.make_node("Add", ["g", "one"], ["a"]),
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("Mul", ["t", "half"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
        [table, *scalars],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    assert onnx.load(folder / "model.onnx", load_external_data=False).graph.initializer[0].dims == [ROWS, WIDTH]
    return folder


def row_of(row: int) -> np.ndarray:
    return np.random.default_rng(row).normal(0, 1, WIDTH).astype(np.float32)


@pytest.mark.parametrize("verify", [False, True], ids=["plain", "verified"])
def test_a_model_over_2_gb_compiles_and_runs_in_bounded_memory(large: Path, tmp_path: Path, verify: bool) -> None:
    source = str(Path(smelt.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "SMELT_CACHE_DIR": str(tmp_path / "cache")}
    done = run(
        sys.executable, "-c", COMPILE, large / "model.onnx", tmp_path / "out", int(verify), env=environment
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout)
    weights = ROWS * WIDTH * 4
    assert made["kernels"] == 4
    assert made["peak"] < 1.3 * weights, f"{made['peak'] / weights:.2f} times the weights at the peak"
    assert made["anonymous"] < 0.3 * weights
    done = run(sys.executable, "-I", "-c", RUN, tmp_path / "out", json.dumps(USED))
    assert done.returncode == 0, done.stderr[-2000:]
    ran = json.loads(done.stdout)
    wanted = [(np.tanh(row_of(row) + 1) * 0.5)[:3] for row in USED]
    np.testing.assert_allclose(ran["y"], wanted, rtol=1e-5)
    assert ran["anonymous"] < 0.3 * weights
    shutil.rmtree(tmp_path / "out")
