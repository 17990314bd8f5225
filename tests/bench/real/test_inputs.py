"""Real models are fed what their users feed them."""

from __future__ import annotations

import numpy as np

from smelt.bench.real.inputs import TABLE, Declared, feeds_for


def test_a_known_model_gets_its_sizes_and_contents():
    declared = [Declared("waveforms", "tensor(float)", ["b", "n"]), Declared("waveforms_lens", "tensor(int64)", ["b"])]
    first, second = feeds_for("onnx-asr/nemo80", declared)
    assert first["waveforms"].shape == (1, 16000) and first["waveforms"].dtype == np.float32
    assert second["waveforms_lens"].tolist() == [40000, 40000] and second["waveforms_lens"].dtype == np.int64
    assert 0.01 < first["waveforms"].std() < 1


def test_an_unknown_model_gets_two_sizes_where_an_axis_is_free_and_one_where_none_is():
    free = feeds_for("new/model", [Declared("x", "tensor(float)", ["batch", 3, None, None])])
    assert [one["x"].shape for one in free] == [(1, 3, 224, 224), (3, 3, 160, 160)]
    fixed = feeds_for("new/model", [Declared("x", "tensor(float)", [1, 7]), Declared("flag", "tensor(bool)", [])])
    assert [one["x"].shape for one in fixed] == [(1, 7)] and fixed[0]["flag"].dtype == np.bool_


def test_the_same_name_gives_the_same_arrays():
    declared = [Declared("bytes", "tensor(int32)", ["b", 2048])]
    once, again = feeds_for("magika/model", declared), feeds_for("magika/model", declared)
    assert all(np.array_equal(a["bytes"], b["bytes"]) for a, b in zip(once, again, strict=True))
    assert once[0]["bytes"].min() >= 0 and once[0]["bytes"].max() < 257


def test_lengths_refer_to_inputs_of_the_same_size():
    for _, given in TABLE:
        for shapes in given.sizes:
            for name, content in given.contents.items():
                if content.startswith("size:") and name in shapes:
                    assert len(shapes[content.removeprefix("size:")]) >= 2
