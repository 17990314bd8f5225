"""Compile only chosen nodes, and read why the others fell back to ONNX Runtime."""

import onnx

import smelt

MODEL = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 17]>
mixed (float[n, 32] x) => (float[n, 32] y, float[n, 32] noisy) {
    a = Exp(x)
    b = Tanh(a)
    y = Softmax<axis = -1>(b)
    noise = RandomUniformLike(y)
    noisy = Add(y, noise)
}
""")


def main() -> None:
    with smelt.compile(MODEL, exclude=("Softmax",), force=True) as compiled:
        for fallback in compiled.result.plan.fallbacks:
            print(f"{fallback.node.op_type}: {fallback.reason}")
        names = {fallback.node.op_type for fallback in compiled.result.plan.fallbacks}
        assert {"Softmax", "RandomUniformLike"} <= names


if __name__ == "__main__":
    main()
