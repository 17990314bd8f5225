"""The ATen table, one module per op family. Importing this package fills the table."""

from smelt.export.aten import activations, creation, elementwise, losses, products, reductions, views

__all__ = ["activations", "creation", "elementwise", "losses", "products", "reductions", "views"]
