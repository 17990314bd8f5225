"""The plugin execution provider from Python: a session compiles its model at first use, then a compiled model is saved.

The provider is the package `onnxruntime-ep-smelt` (packages/ of this repository). Where it is not installed, this
builds its library first.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

PACKAGE = Path(__file__).resolve().parents[1] / "packages" / "onnxruntime-ep-smelt"


def provider_library(folder: Path) -> str:
    if importlib.util.find_spec("onnxruntime_ep_smelt") is not None:
        import onnxruntime_ep_smelt

        return onnxruntime_ep_smelt.get_library_path()
    sys.path.insert(0, str(PACKAGE))
    from setup import compile_library

    compile_library(folder / "libonnxruntime_ep_smelt.so")
    return str(folder / "libonnxruntime_ep_smelt.so")


def classifier() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    scale = numpy_helper.from_array(rng.standard_normal(768).astype(np.float32), "scale")
    nodes = [helper.make_node("Mul", ["x", "scale"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 768]) for name in "xy")
    graph = helper.make_graph(nodes, "classifier", [x], [y], [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def options(**more: str) -> ort.SessionOptions:
    made = ort.SessionOptions()
    devices = [device for device in ort.get_ep_devices() if device.ep_name == "SmeltExecutionProvider"]
    made.add_provider_for_devices(devices, {"python": sys.executable, "time_limit": "120", **more})
    return made


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.onnx"
        onnx.save(classifier(), model)
        ort.register_execution_provider_library("smelt", provider_library(folder))

        x = np.random.default_rng(1).standard_normal((4, 768)).astype(np.float32)
        stock = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        session = ort.InferenceSession(model, options())
        print("providers:", ", ".join(session.get_providers()))
        print("difference from stock:", float(np.abs(session.run(None, {"x": x})[0] - stock).max()))

        out = folder / "compiled"
        out.mkdir(mode=0o700)
        ort.ModelCompiler(options(), str(model)).compile_to_file(str(out / "model_ctx.onnx"))
        print("compiled model:", ", ".join(sorted(path.name for path in out.iterdir())))
        loaded = ort.InferenceSession(out / "model_ctx.onnx", options(compile="never"))
        print("difference from stock:", float(np.abs(loaded.run(None, {"x": x})[0] - stock).max()))


if __name__ == "__main__":
    main()
