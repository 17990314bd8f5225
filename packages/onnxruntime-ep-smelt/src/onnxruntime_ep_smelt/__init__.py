"""smelt as a plugin execution provider of ONNX Runtime: where its library is, and what the provider is called.

Input: nothing. Output: what `onnxruntime.register_execution_provider_library` and `get_ep_devices` need. Invariant:
imports neither onnxruntime nor smelt; any program that loads providers can use the path.

    import onnxruntime as ort
    import onnxruntime_ep_smelt as ep

    ort.register_execution_provider_library("smelt", ep.get_library_path())
    options = ort.SessionOptions()
    options.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == ep.get_ep_name()], {})
    session = ort.InferenceSession("model.onnx", options)
"""

from pathlib import Path

__all__ = ["__version__", "get_ep_name", "get_ep_names", "get_library_path"]

__version__ = "0.2.0"  # that of the compiler: each takes only the other's own release

_LIBRARY = "libonnxruntime_ep_smelt.so"


def get_library_path() -> str:
    """The shared library, for `register_execution_provider_library`."""
    return str(Path(__file__).resolve().parent / _LIBRARY)


def get_ep_name() -> str:
    """The name of the provider that the library has."""
    return "SmeltExecutionProvider"


def get_ep_names() -> list[str]:
    """The names of all providers of the library: one."""
    return [get_ep_name()]
