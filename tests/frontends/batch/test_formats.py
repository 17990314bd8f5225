from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

from tests.frontends.batch.data import (  # noqa: E402
    dense_model,
    expected,
    failures,
    results,
    rows,
    save,
    token_model,
    value,
    vectors,
    write_parquet,
)

from smelt.base.errors import InputError  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_threads")


def test_parquet_gives_a_part_for_each_row_group_in_order(run, tmp_path: Path):
    x = rows(250)
    write_parquet(tmp_path / "in" / "b.parquet", x[:130])
    write_parquet(tmp_path / "in" / "c.parquet", x[130:])
    report = run(dense_model(tmp_path), str(tmp_path / "in" / "*.parquet"))
    assert report.complete and report.parts == 4
    table = pq.read_table(tmp_path / "out")
    assert table.column("id").to_pylist() == [*range(130), *range(120)]
    assert str(table.schema.field("y").type) == "fixed_size_list<element: float>[3]"
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)


@pytest.mark.parametrize("ending", ["arrow", "stream", "feather"])
def test_arrow_files_and_streams(run, tmp_path: Path, ending: str):
    x = rows(90)
    table = pa.table({"x": vectors(x)})
    path = tmp_path / ("in.feather" if ending == "feather" else "in.arrow")
    new = pa.ipc.new_stream if ending == "stream" else pa.ipc.new_file
    with new(path, table.schema) as writer:
        for at in range(0, 90, 40):
            writer.write_table(table.slice(at, 40))
    run(dense_model(tmp_path), path)
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)


def test_wide_rows_of_an_arrow_file_make_more_than_one_part(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from smelt.frontends.batch.sources import pieces

    monkeypatch.setattr(pieces, "WINDOW_BYTES", 1024)  # a part of 128 rows of 32 bytes
    x = rows(500)
    table = pa.table({"x": vectors(x)})
    with pa.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    assert run(dense_model(tmp_path), tmp_path / "in.arrow").parts == 4
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)


def test_csv_columns_make_a_vector_and_bad_records_keep_the_others_in_place(run, tmp_path: Path):
    x = rows(40)
    lines = ["id,note," + ",".join(f"f{i}" for i in range(8))]
    lines += [f'{i},"a ""b"",\n c",' + ",".join(repr(float(v)) for v in row) for i, row in enumerate(x)]
    lines[6] = "5,short,1"
    lines[9] = lines[9].replace(repr(float(x[8][0])), "many")
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    report = run(dense_model(tmp_path), tmp_path / "in.csv", map={"x": ",".join(f"f{i}" for i in range(8))})
    assert report.rows == 40 and report.failed_rows == 2
    table = pq.read_table(tmp_path / "out")
    assert table.column("note").to_pylist()[0] == 'a "b",\n c'
    assert [row is None for row in table.column("y").to_pylist()] == [i in (5, 8) for i in range(40)]
    good = [i for i in range(40) if i not in (5, 8)]
    np.testing.assert_allclose(np.array([table.column("y")[i].as_py() for i in good]), expected(x[good]), atol=1e-6)
    found = failures(tmp_path / "out")
    assert [one["row"] for one in found] == [5, 8]
    assert "fields" in found[0]["reason"] and "'many'" in found[1]["reason"]


def test_long_csv_is_cut_at_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from smelt.frontends.batch.sources import line_ranges

    monkeypatch.setattr(line_ranges, "_PIECE_BYTES", 40)
    monkeypatch.setattr(line_ranges, "_CHUNK_BYTES", 16)
    text = "".join(f'{i},"x\n{"y" * (i % 7)}"\r\n' + ("\r\n" if i % 5 == 0 else "") for i in range(30))
    (tmp_path / "a.csv").write_bytes(text.encode())
    pieces = line_ranges.line_pieces(tmp_path / "a.csv", 0, quoted=True)
    assert len(pieces) > 5 and sum(piece.rows for piece in pieces) == 30
    joined = b"".join(line_ranges.read_range(tmp_path / "a.csv", piece.first, piece.last) for piece in pieces)
    assert joined.decode() == text
    assert all(text.encode()[piece.first : piece.last].count(b'"') % 2 == 0 for piece in pieces)


def test_json_lines_with_bad_lines(run, tmp_path: Path):
    x = rows(20)
    lines = [json.dumps({"id": i, "x": [float(v) for v in row]}) for i, row in enumerate(x)]
    lines[3] = '{"id": 3, "x": [1,'
    lines[7] = '{"id": 7, "x": [1.0, 2.0]}'
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    report = run(dense_model(tmp_path), tmp_path / "in.jsonl")
    assert report.failed_rows == 2
    reasons = {one["row"]: one["reason"] for one in failures(tmp_path / "out")}
    assert reasons[3].startswith("no JSON") and reasons[7] == "a list of 2, the model takes 8"


@pytest.mark.parametrize("save_as", ["npy", "npz", "compressed"])
def test_numpy_files(run, tmp_path: Path, save_as: str):
    x = rows(50)
    if save_as == "npy":
        np.save(tmp_path / "in.npy", x)
    else:
        (np.savez if save_as == "npz" else np.savez_compressed)(tmp_path / "in.npz", x=x, label=np.arange(50))
    run(dense_model(tmp_path), tmp_path / ("in.npy" if save_as == "npy" else "in.npz"))
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)


def image(color: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> bytes:
    library = pytest.importorskip("PIL.Image")
    block = io.BytesIO()
    library.new("RGB", size, color).save(block, "PNG")
    return block.getvalue()


def mean_model(folder: Path) -> Path:
    node = helper.make_node("ReduceMean", ["pixels"], ["mean"], axes=[2, 3], keepdims=0)
    return save(
        folder / "mean.onnx", [node], [value("pixels", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [value("mean", TensorProto.FLOAT, ["n", 3])],
    )  # fmt: skip


def test_a_folder_of_images_is_decoded_by_the_declared_steps(run, tmp_path: Path):
    for place, color in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{place}.png").write_bytes(image(color))
    (tmp_path / "in" / "1b.png").write_bytes(b"no image")
    report = run(mean_model(tmp_path), tmp_path / "in", image="resize=12,crop=8,mean=0.5/0.5/0.5,std=0.5/0.5/0.5")
    table = pq.read_table(tmp_path / "out")
    assert table.column("path").to_pylist() == ["0.png", "1.png", "1b.png", "2.png"]
    assert table.column("mean").to_pylist() == [[1, -1, -1], [-1, 1, -1], None, [-1, -1, 1]]
    assert report.failed_rows == 1
    assert failures(tmp_path / "out") == [
        {"file": str(tmp_path / "in" / "1b.png"), "row": 2, "reason": "no image of a known format"}
    ]


def test_grays_of_sixteen_bits_keep_their_high_byte(run, tmp_path: Path):
    library = pytest.importorskip("PIL.Image")
    (tmp_path / "in").mkdir()
    grays = np.full((8, 8), 0x80FF, np.uint16)
    library.fromarray(grays).save(tmp_path / "in" / "a.png")
    library.fromarray(grays).save(tmp_path / "in" / "b.tiff")
    library.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "in" / "c.tiff")
    run(mean_model(tmp_path), tmp_path / "in", image="resize=8x8,scale=128")
    assert pq.read_table(tmp_path / "out").column("mean").to_pylist() == [[1, 1, 1], [1, 1, 1], None]
    assert "mode F" in failures(tmp_path / "out")[0]["reason"]


def test_images_in_a_column_as_hugging_face_stores_them(run, tmp_path: Path):
    cells = [{"bytes": image((255, 255, 0)), "path": None}, {"bytes": None, "path": "gone.png"}]
    pq.write_table(pa.table({"image": pa.array(cells)}), tmp_path / "in.parquet")
    run(mean_model(tmp_path), tmp_path / "in.parquet", image="resize=8x8", map={"pixels": "image"})
    assert pq.read_table(tmp_path / "out").column("mean").to_pylist() == [[1, 1, 0], None]


def test_a_saved_hugging_face_data_set(run, tmp_path: Path):
    """The layout of `Dataset.save_to_disk`: Arrow streams and state.json."""
    x = rows(30)
    folder = tmp_path / "set"
    folder.mkdir()
    for place in range(2):
        table = pa.table({"x": vectors(x[place * 15 : place * 15 + 15])})
        with pa.ipc.new_stream(folder / f"data-{place}.arrow", table.schema) as writer:
            writer.write_table(table)
    state = {"_data_files": [{"filename": "data-0.arrow"}, {"filename": "data-1.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    run(dense_model(tmp_path), folder)
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../dense.onnx"}]}))
    with pytest.raises(InputError, match="lies elsewhere"):
        run(dense_model(tmp_path), folder, "other")


def test_ragged_lists_are_padded_masked_and_trimmed(run, tmp_path: Path):
    lists = [[1], [1, 2, 3], [], [4, 4], [5] * 40]
    pq.write_table(pa.table({"input_ids": pa.array(lists, pa.list_(pa.int32()))}), tmp_path / "in.parquet")
    run(token_model(tmp_path), tmp_path / "in.parquet", batch=2, keep=["input_ids"])
    table = pq.read_table(tmp_path / "out")
    assert table.column("input_ids").to_pylist() == lists
    means = table.column("mean").to_pylist()
    assert means[:2] == [1.0, 2.0] and means[3:] == [4.0, 5.0] and np.isnan(means[2])
    assert table.column("twice").to_pylist() == [[2.0 * v for v in row] for row in lists]
    assert str(table.schema.field("twice").type) == "list<element: float>"


def test_lists_of_lists_are_padded_on_both_axes(run, tmp_path: Path):
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])
    shapes = [value("x", TensorProto.FLOAT, ["n", "a", "b"])], [value("y", TensorProto.FLOAT, ["n"])]
    model = save(tmp_path / "sum.onnx", [node], *shapes, (axes,))
    cells = [[[1.0], [2.0, 3.0]], [[4.0, 5.0, 6.0]], []]
    pq.write_table(pa.table({"x": pa.array(cells, pa.list_(pa.list_(pa.float32())))}), tmp_path / "in.parquet")
    run(model, tmp_path / "in.parquet")
    assert pq.read_table(tmp_path / "out").column("y").to_pylist() == [6.0, 15.0, 0.0]


def test_parts_can_be_arrow_files(run, tmp_path: Path):
    run(dense_model(tmp_path), write_parquet(tmp_path / "in.parquet", rows(30)), format="arrow")
    assert pa.ipc.open_file(tmp_path / "out" / "part-000000.arrow").read_all().num_rows == 30


def test_decimals_are_numbers_where_rounding_is_asked_for(run, tmp_path: Path):
    x = np.round(rows(20), 3)
    columns = {f"c{i}": pa.array([Decimal(str(v)) for v in x[:, i]], pa.decimal128(12, 3)) for i in range(8)}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    wanted = {"map": {"x": ",".join(columns)}}
    with pytest.raises(InputError, match="decimal128"):
        run(dense_model(tmp_path), tmp_path / "in.parquet", **wanted)
    run(dense_model(tmp_path), tmp_path / "in.parquet", cast=True, **wanted)
    np.testing.assert_allclose(results(tmp_path / "out"), expected(x), atol=1e-6)
    lists = pa.array([[Decimal(str(v)) for v in row] for row in x], pa.list_(pa.decimal128(12, 3)))
    pq.write_table(pa.table({"x": lists}), tmp_path / "lists.parquet")
    run(dense_model(tmp_path), tmp_path / "lists.parquet", "lists", cast=True)
    np.testing.assert_allclose(results(tmp_path / "lists"), expected(x), atol=1e-6)


@pytest.mark.parametrize("dims", [["n", 2], ["n", "m"]])
def test_a_type_that_arrow_does_not_know_is_written_in_a_wider_one(run, tmp_path: Path, dims: list[int | str]):
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    model = save(
        tmp_path / "m.onnx", [node], [value("x", TensorProto.FLOAT, dims)], [value("y", TensorProto.BFLOAT16, dims)]
    )
    pq.write_table(pa.table({"x": pa.array([[1.5, 3.0]] * 4, pa.list_(pa.float32()))}), tmp_path / "in.parquet")
    run(model, tmp_path / "in.parquet")
    assert pq.read_table(tmp_path / "out").column("y").to_pylist() == [[1.5, 3.0]] * 4


@pytest.mark.parametrize("width", [0, 2])
def test_texts_come_out_as_texts_and_null_where_a_row_failed(run, tmp_path: Path, width: int):
    cells = [["a", "b"], None, ["日本", ""]] if width else ["a", None, ""]
    shape = ["n", width] if width else ["n"]
    node = helper.make_node("Identity", ["t"], ["o"])
    model = save(tmp_path / "t.onnx", [node], *([value(name, TensorProto.STRING, shape)] for name in "to"))
    kind = pa.list_(pa.string(), width) if width else pa.string()
    pq.write_table(pa.table({"t": pa.array(cells, kind)}), tmp_path / "in.parquet")
    assert run(model, tmp_path / "in.parquet").failed_rows == 1
    assert pq.read_table(tmp_path / "out").column("o").to_pylist() == cells


def test_a_kept_column_that_parquet_cannot_hold_is_named(run, tmp_path: Path):
    ends = pa.RunEndEncodedArray.from_arrays([3, 5], [1.0, 2.0])
    feather.write_feather(pa.table({"x": vectors(rows(5)), "ends": ends}), tmp_path / "in.arrow")
    with pytest.raises(InputError, match=r"column 'ends' cannot be written to parquet: run_end_encoded") as refused:
        run(dense_model(tmp_path), tmp_path / "in.arrow")
    assert refused.value.code == "SM-BATCH-005" and "--format arrow" in refused.value.hint
    assert run(dense_model(tmp_path), tmp_path / "in.arrow", "arrow", format="arrow").rows_done == 5
    assert run(dense_model(tmp_path), tmp_path / "in.arrow", "without", keep=[]).rows_done == 5
