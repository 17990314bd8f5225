"""Makes `region_check` and `merged` importable by the tests of whole regions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
