"""One declaration per ONNX op, and what follows from them: facts about every value of a model."""

from . import softmax as _softmax
from .analysis import Fact, Facts, analyze, meaning
from .registry import LONG, SHORT, Call, Declaration, declarations, lookup, op

__all__ = ["LONG", "SHORT", "Call", "Declaration", "Fact", "Facts", "analyze", "declarations", "lookup", "meaning", "op"]

_FAMILIES = (_softmax,)
