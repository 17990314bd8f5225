"""Makes the executor, the simulation and the mock driver importable by the tests of the Triton backend."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, by whichever test
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
