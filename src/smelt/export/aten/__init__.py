"""The ATen table, one module per op family. Importing this package imports all of them, which fills the table."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
