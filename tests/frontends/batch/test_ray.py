"""The same parts from a Ray cluster of three nodes on this machine, one of which is killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

pytest.importorskip("pyarrow")

from tests.frontends.batch import test_runs
from tests.frontends.batch.data import WEIGHT, dense_model, expected, part_bytes, results, rows, write_parquet

import smelt
from smelt.base.errors import InputError
from smelt.frontends.batch.ray_run import packed, unpacked

GIVEN: dict[str, Any] = {"stock": True, "batch": 8, "threads": 1, "preprocess": test_runs.slow}


def test_an_artifact_is_unpacked_once_per_node(tmp_path: Path):
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "manifest.json").write_text("{}")
    first = unpacked(packed(tmp_path / "artifact"), False, "artifact", tmp_path / "node")
    mark = first / "mark"
    mark.touch()
    again = unpacked(packed(tmp_path / "artifact"), False, "artifact", tmp_path / "node")
    assert again == first and mark.exists() and (again / "manifest.json").read_text() == "{}"


def test_a_stock_model_goes_with_its_external_data(tmp_path: Path):
    model = onnx.load(dense_model(tmp_path))
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(WEIGHT, "w"))
    onnx.save(model, tmp_path / "big.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    place = unpacked(packed(tmp_path / "big.onnx"), True, "big.onnx", tmp_path / "node")
    assert place.name == "big.onnx" and onnx.load(place).graph.initializer[0].raw_data == WEIGHT.tobytes()


def test_an_address_that_nobody_answers(run, in_threads, tmp_path: Path):
    data = write_parquet(tmp_path / "in.parquet", rows(10))
    with pytest.raises(InputError) as refused:
        run(dense_model(tmp_path), data, ray="127.0.0.1:1")
    assert refused.value.code == "SM-BATCH-015"


@pytest.mark.full
def test_a_killed_node_changes_nothing(tmp_path: Path):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(3000), group=50)
    smelt.batch(model, data, tmp_path / "calm", workers=1, **GIVEN)
    store = 100 << 20
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": store}, connect=True)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=store) for _ in range(2)]
    killed_at: list[int] = []

    def kill() -> None:
        while (count := len(list((tmp_path / "out").glob("part-*")))) < 10:
            time.sleep(0.05)
        cluster.remove_node(nodes[0], allow_graceful=False)
        killed_at.append(count)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        report = smelt.batch(model, data, tmp_path / "out", ray="auto", workers=3, **GIVEN)
        assert report.complete and killed_at and killed_at[0] < 60
        assert part_bytes(tmp_path / "out") == part_bytes(tmp_path / "calm")
        (tmp_path / "out" / "part-000007.parquet").unlink()
        again = smelt.batch(model, data, tmp_path / "out", ray="auto", workers=1, **GIVEN)
        assert (again.parts_done, again.parts_skipped) == (1, 59)
        assert part_bytes(tmp_path / "out") == part_bytes(tmp_path / "calm")
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.full
def test_local_ray_makes_the_same_results(tmp_path: Path):
    pytest.importorskip("ray")
    model, data = dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(100), group=50)
    given = {**GIVEN, "preprocess": None, "workers": 1}
    assert smelt.batch(model, data, tmp_path / "out", ray="local", **given).complete
    assert abs(results(tmp_path / "out") - expected(rows(100))).max() < 1e-6
