"""Exp n times in a row: memory is read and written once, whatever n is."""

import argparse

import numpy as np
import onnx
from _side_by_side import side_by_side


def n_exp(count: int) -> onnx.ModelProto:
    """A shift between the powers keeps the values in range."""
    steps = "\n".join(f"s{n} = Sub(x{n}, shift)\nx{n + 1} = Exp(s{n})" for n in range(count))
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        n_exp (float[rows, columns] x0) => (float[rows, columns] x{count}) <float shift = {{1.5}}> {{
            {steps}
        }}""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=8)
    rng = np.random.default_rng(0)
    shapes = ((1, 1), (7, 33), (128, 512))
    feeds = {f"{rows} x {columns}": {"x0": rng.random((rows, columns), np.float32)} for rows, columns in shapes}
    side_by_side(n_exp(parser.parse_args().count), feeds)


if __name__ == "__main__":
    main()
