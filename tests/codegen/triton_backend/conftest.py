"""Makes the executor, the simulation and the mock driver importable by the tests of the Triton backend."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
