"""The ATen table, one module per op family. Importing this package fills the table.

Input: the modules of this folder. Output: the table. Invariant: every module here is a family and is imported.
"""

from importlib import import_module
from pkgutil import iter_modules

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
