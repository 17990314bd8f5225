"""Run an artifact with nothing but onnxruntime: the program of the slim container.

    serve_artifact.py ARTIFACT INPUTS.npz OUTPUTS.npz    inputs by name in, outputs by name out
    serve_artifact.py --check                            whether onnxruntime is here and can run

The library is loaded after its SHA-256 was compared with the manifest's.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort


def session_of(folder: Path) -> ort.InferenceSession:
    library = json.loads((folder / "manifest.json").read_bytes())["library"]
    options = ort.SessionOptions()
    if library is not None:  # a model that stock runs best has none
        path = folder / Path(library["file"]).name
        if hashlib.sha256(path.read_bytes()).hexdigest() != library["sha256"]:
            raise SystemExit(f"{path} is not the library that was compiled")
        options.register_custom_ops_library(str(path.absolute()))
    return ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        print("onnxruntime", ort.__version__, ", ".join(ort.get_available_providers()))
        return
    if len(arguments) == 0:  # as every example does: a small artifact of its own, where smelt is installed
        demo()
        return
    folder, inputs, outputs = map(Path, arguments)
    session = session_of(folder)
    with np.load(inputs) as given:
        answers = session.run(None, dict(given))
    np.savez(outputs, **{value.name: answer for value, answer in zip(session.get_outputs(), answers, strict=True)})
    print("wrote", outputs)


def demo() -> None:
    import tempfile

    from onnx import TensorProto, helper, save

    import smelt

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = [helper.make_node("Softmax", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
        x, y = (helper.make_tensor_value_info(letter, TensorProto.FLOAT, ["n", 64]) for letter in "xy")
        graph = helper.make_graph(nodes, "demo", [x], [y])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
        smelt.compile(folder / "m.onnx").save(folder / "out")
        np.savez(folder / "in.npz", x=np.ones((2, 64), np.float32))
        main([str(folder / "out"), str(folder / "in.npz"), str(folder / "out.npz")])


if __name__ == "__main__":
    main(sys.argv[1:])
