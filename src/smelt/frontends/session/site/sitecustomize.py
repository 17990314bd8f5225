"""Put on PYTHONPATH by `smelt exec`: the program's own sitecustomize runs, then the hook waits for onnxruntime."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_here = str(Path(__file__).resolve().parent)
_others = [entry for entry in sys.path if not entry or str(Path(entry).resolve()) != _here]
_next = PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _module = importlib.util.module_from_spec(_next)
    _next.loader.exec_module(_module)

try:
    from smelt.frontends.session.autoload import arm
except ImportError as error:  # an environment without smelt
    sys.stderr.write(f"smelt: sessions run on stock ONNX Runtime: {error}\n")
else:
    arm()
