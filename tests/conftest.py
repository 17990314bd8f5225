"""All tests: an internal error is raised where it happens. Tests of containment set a `Config` of their own."""

from __future__ import annotations

import os

os.environ["SMELT_STRICT"] = "1"
