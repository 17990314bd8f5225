"""The package's version, the one place where it is written.

Input: nothing. Output: `__version__`. Invariant: lowest layer, so that every stage may record it.
"""

__version__ = "0.2.0"
