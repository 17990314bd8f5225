"""A table in, a table out: score rows of a Parquet file, interrupt, go on, look at what failed.

pip install 'onnx-smelt[batch]'
python examples/batch_scores.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import parser

import smelt

MODEL = """<ir_version: 9, opset_import: ["" : 18]>
scores (float[n, 16] features) => (float[n, 4] score)
{ product = MatMul(features, weight)  score = Softmax(product) }"""


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    random = np.random.default_rng(0)
    model = parser.parse_model(MODEL)
    weight = random.standard_normal((16, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(model, folder / "model.onnx")
    rows = [list(map(float, row)) for row in random.standard_normal((5000, 16))]
    rows[42] = rows[42][:7]  # somebody's mistake
    table = pa.table({"id": range(5000), "features": pa.array(rows, pa.list_(pa.float32()))})
    pq.write_table(table, folder / "in.parquet", row_group_size=1000)

    report = smelt.batch(folder / "model.onnx", folder / "in.parquet", folder / "out")
    print("\n".join(report.lines()))
    for line in (folder / "out" / "_smelt" / "errors.jsonl").read_text().splitlines():
        print("failed:", {name: value for name, value in json.loads(line).items() if name != "file"})

    (folder / "out" / "part-000003.parquet").unlink()  # as if the run had been killed
    again = smelt.batch(folder / "model.onnx", folder / "in.parquet", folder / "out")
    print(f"again: {again.parts_done} part made, {again.parts_skipped} were there")

    scores = pq.read_table(folder / "out")
    print(scores.schema)
    assert scores.num_rows == 5000 and scores["score"].null_count == 1 and again.parts_done == 1


if __name__ == "__main__":
    main()
