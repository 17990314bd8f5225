"""Why ops of the standard have no kernel.

Input: an op's name. Output: the reason, for `smelt explain` and the documentation. Invariant: every standard op is
either declared or listed here; a test compares both with the schemas of the onnx package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SEQUENCES: Final = "it works on sequences or optional values, and kernels hold tensors only"
_STRINGS: Final = "it works on text"
_RANDOM: Final = "its random numbers come from ONNX Runtime's own generator"
_CONTROL: Final = "ONNX Runtime runs control flow; nodes inside its bodies get kernels of their own"
_FOURIER: Final = "it becomes a matrix product only where its length and window are known"
_RARE: Final = "no kernel yet"

REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
         "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
         "SplitToSequence"), _SEQUENCES,
    ),
    **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"), _STRINGS),
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _RANDOM,
    ),
    **dict.fromkeys(("If", "Loop", "Scan"), _CONTROL),
    **dict.fromkeys(("DFT", "STFT"), _FOURIER),
    "MelWeightMatrix": "it is folded where its inputs are constant, and seldom runs where they are not",
    **dict.fromkeys(
        ("AffineGrid", "BitCast", "CausalConvWithState", "DeformConv", "ImageDecoder",
         "LinearAttention", "MaxRoiPool", "MaxUnpool", "NegativeLogLikelihoodLoss",
         "SoftmaxCrossEntropyLoss", "SwiGLU", "TensorScatter"), _RARE,
    ),
}  # fmt: skip


def reason(domain: str, name: str) -> str:
    """Why a node of this op stays with ONNX Runtime."""
    return REASONS.get(name, _RARE) if not domain else "no kernel for this op"
