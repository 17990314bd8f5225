"""What users call: one file per way in. Each gives the pipeline a model and hands back something that runs."""

from smelt.frontends.onnx_file import CompiledModel, Coverage, compile
from smelt.pipeline import Options

__all__ = ["CompiledModel", "Coverage", "Options", "compile"]
