"""One declaration per ONNX op, and what follows from them: facts about every value of a model."""

from . import activations as _activations
from . import attention as _attention
from . import block_quantized as _block_quantized
from . import cast as _cast
from . import col2im as _col2im
from . import comparison as _comparison
from . import contrib_activations as _contrib_activations
from . import contrib_attention as _contrib_attention
from . import contrib_normalization as _contrib_normalization
from . import contrib_quantized as _contrib_quantized
from . import convolution as _convolution
from . import einsum as _einsum
from . import elementwise as _elementwise
from . import found_sizes as _found_sizes
from . import gather as _gather
from . import gather_block_quantized as _gather_block_quantized
from . import grid_sample as _grid_sample
from . import group_query_attention as _group_query_attention
from . import integer_product as _integer_product
from . import movement as _movement
from . import non_max_suppression as _non_max_suppression
from . import normalization as _normalization
from . import pooling as _pooling
from . import product as _product
from . import quantize as _quantize
from . import quantized_attention as _quantized_attention
from . import quantized_operators as _quantized_operators
from . import quantized_recurrent as _quantized_recurrent
from . import recurrent as _recurrent
from . import reduction as _reduction
from . import resize as _resize
from . import roi_align as _roi_align
from . import rotary as _rotary
from . import scan as _scan
from . import scatter as _scatter
from . import shape as _shape
from . import shape_only_products as _shape_only_products
from . import shape_only_windows as _shape_only_windows
from . import signal as _signal
from . import slicing as _slicing
from . import softmax as _softmax
from . import topk as _topk
from .analysis import analyze, lower
from .facts import Fact, Facts
from .registry import LONG, SHORT, Call, Declaration, cost_of, declarations, lookup, made_by, op
from .work import Shapes

__all__ = [
    "LONG",
    "SHORT",
    "Call",
    "Declaration",
    "Fact",
    "Facts",
    "Shapes",
    "analyze",
    "cost_of",
    "declarations",
    "lookup",
    "lower",
    "made_by",
    "op",
]

_FAMILIES = (
    _product, _integer_product, _block_quantized,
    _einsum, _attention, _contrib_attention, _group_query_attention, _rotary, _convolution, _pooling,
    _activations, _cast, _comparison, _contrib_activations, _elementwise, _quantize, _quantized_operators,
    _contrib_quantized, _quantized_attention,
    _softmax, _reduction, _scan, _normalization, _contrib_normalization,
    _scatter, _topk, _grid_sample, _signal, _recurrent, _quantized_recurrent, _found_sizes, _non_max_suppression,
    _roi_align, _col2im,
    _gather, _gather_block_quantized, _movement, _resize, _shape, _shape_only_products, _shape_only_windows, _slicing,
)  # fmt: skip
