"""A model in, a faster one out: compile, run, compare with stock ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime as ort

import smelt

MODEL = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
block (float[batch, seq, 64] x, float[64] scale, float[64] shift) => (float[batch, seq, 64] y)
<float half = {0.5}, float one = {1.0}, float root2 = {1.4142135}> {
    n = LayerNormalization<axis = -1>(x, scale, shift)
    d = Div(n, root2)
    e = Erf(d)
    p = Add(e, one)
    g = Mul(n, p)
    h = Mul(g, half)
    y = Add(h, x)
}
""")


def main() -> None:
    rng = np.random.default_rng(0)
    feeds = {"scale": np.ones(64, np.float32), "shift": np.zeros(64, np.float32)}
    stock = ort.InferenceSession(MODEL.SerializeToString(), providers=["CPUExecutionProvider"])
    with smelt.compile(MODEL) as fast:
        for batch, seq in ((1, 7), (3, 128)):
            feeds["x"] = rng.standard_normal((batch, seq, 64)).astype(np.float32)
            difference = np.abs(fast.run(feeds)[0] - stock.run(None, feeds)[0]).max()
            print(f"batch {batch}, length {seq}: largest difference {difference:.1e}")
            assert difference < 1e-5
        print(f"{fast.coverage.in_kernels} of {fast.coverage.nodes} nodes run in one kernel")


if __name__ == "__main__":
    main()
