"""A backend in one folder: scalar C loops, one array per tensor; no vectors, packing, layouts or threads.

    backend.py   what the pipeline asks: claims, cost, generate
    region.py    a region as one C function: sizes, checks, memory, then its tensors in order
    loops.py     the loop nest of each definition of the tensor language
    elements.py  scalar expressions and indices as C
    plain.h      scalar functions, over the C library's in double

It proves that `ir/backend.py` is all that a code generator needs, and it is an oracle for the C backend: it shares the
declarations of the ops and nothing below them, except functions that are written in C themselves.
"""

from .backend import PlainBackend

__all__ = ["PlainBackend"]
