"""Files -> windows of rows as Arrow tables, one module per format.

Input: paths. Output: `find_files`, and for each file its schema, its pieces and a reader of one piece. Invariant: a
reader holds a few megabytes, whatever the size of its file.
"""

from smelt.frontends.batch.sources.find import find_files
from smelt.frontends.batch.sources.pieces import Facts, Format, Piece, Window
from smelt.frontends.batch.sources.table import format_of, inspect_file

__all__ = ["Facts", "Format", "Piece", "Window", "find_files", "format_of", "inspect_file"]
