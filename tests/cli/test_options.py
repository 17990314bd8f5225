from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tests.cli.conftest import small_model

from smelt.base.errors import ConfigError, InputError
from smelt.cli.feeds import feed_attempts, first_that_runs
from smelt.cli.options import parse_dims, parse_files, parse_names, parse_shapes, read_settings


def test_shapes_are_read_in_both_spellings():
    assert parse_shapes(["x:1,128", "y:2x3", "s:"]) == {"x": (1, 128), "y": (2, 3), "s": ()}


def test_the_last_colon_ends_the_name():
    assert parse_shapes(["input:0:4,5"]) == {"input:0": (4, 5)}


@pytest.mark.parametrize("text", ["x", ":1", "x:1,-1", "x:a", "x:1,3,48,x", "x:1,,2", "x:1.5", "x:" + "9" * 30])
def test_shapes_that_cannot_be_read_are_refused(text: str):
    with pytest.raises(ConfigError):
        parse_shapes([text])


def test_dims_files_and_names():
    assert parse_dims(["batch=1,seq=128", "z=0"]) == {"batch": 1, "seq": 128, "z": 0}
    assert parse_files(["x=a=b.npy"]) == {"x": Path("a=b.npy")}
    assert parse_names(" v2, v3,") == ("v2", "v3")


def test_settings_are_those_of_an_artifact(tmp_path: Path):
    (tmp_path / "manifest.json").write_text('{"settings": {"k_a.loop-grain": 5000}}')
    assert read_settings(tmp_path, tune=False) == {"k_a.loop-grain": 5000} and read_settings(None, tune=True) == {}
    with pytest.raises(ConfigError, match="--tune and --settings"):
        read_settings(tmp_path, tune=True)
    for wrong in ('{"settings": {"a": "1; }"}}', '{"settings": [1]}', '{"settings": {"a": true}}'):
        (tmp_path / "manifest.json").write_text(wrong)
        with pytest.raises(ConfigError):
            read_settings(tmp_path, tune=False)


def model() -> ir.Model:
    return ir.from_proto(small_model())


def test_generated_feeds_have_the_shape_asked_for_and_repeat_by_seed():
    first, again, other = (next(feed_attempts(model(), {"x": (3, 8)}, {}, seed)) for seed in (1, 1, 2))
    assert first["x"].shape == (3, 8)
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])


def test_a_size_that_inputs_share_is_given_once():
    two = model()
    two.graph.inputs.append(ir.Value(name="z", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n"])))
    assert next(feed_attempts(two, {"x": (5, 8)}, {}, 0))["z"].shape == (5,)


def test_contents_of_a_file_are_used(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.full((2, 8), 7, np.float32))
    (feeds,) = feed_attempts(model(), {}, {"x": tmp_path / "x.npy"}, 0)
    assert (feeds["x"] == 7).all()


def test_pickles_are_refused(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError):
        next(feed_attempts(model(), {}, {"x": tmp_path / "x.npy"}, 0))


def test_the_first_feeds_that_run_are_kept_and_the_first_error_told():
    def picky(feeds: dict[str, int]) -> int:
        if feeds["x"] < 2:
            raise ValueError(f"bad {feeds['x']}")
        return feeds["x"] * 10

    assert first_that_runs(iter([{"x": 1}, {"x": 2}, {"x": 3}]), picky) == ({"x": 2}, 20)
    with pytest.raises(ValueError, match="bad 0"):
        first_that_runs(iter([{"x": 0}, {"x": 1}]), picky)
