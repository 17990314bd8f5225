"""Encoded images -> tensors, by declared steps.

Input: the bytes of a file; steps as `resize=256,crop=224,scale=255,mean=...,std=...,layout=nchw`. Output: arrays, one
per image. Invariant: the steps' text decides everything: color, resampling, order of axes; an image that cannot be
decoded, or is beyond 100 million pixels, is a bad row.

| step | what it does | default |
|---|---|---|
| `color=rgb` | `rgb`, `bgr` or `gray` | rgb |
| `resize=224` | the shorter side becomes 224 (bilinear, antialiased); `resize=240x320` both sides | none |
| `crop=224` | the middle; smaller images are an error of that row | none |
| `scale=255` | divide by it | 255 for float inputs |
| `mean=0.5/0.5/0.5`, `std=...` | subtract, divide, per channel, after `scale` | none |
| `layout=nchw` | or `nhwc` | nchw |
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smelt.base.errors import ConfigError
from smelt.frontends.batch.packages import package

_PIXELS: Final = 100_000_000
_STEPS: Final = ("color", "resize", "crop", "scale", "mean", "std", "layout")
_MODES: Final = {"rgb": "RGB", "bgr": "RGB", "gray": "L"}


@dataclass(frozen=True)
class ImageSteps:
    """The steps, read."""

    color: str = "rgb"
    resize: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: str = "nchw"


def parse_steps(texts: Sequence[str]) -> ImageSteps:
    """`("resize=256", "crop=224")` -> steps."""
    given: dict[str, Any] = {}
    for text in (part.strip() for one in texts for part in one.split(",") if part.strip()):
        name, equals, value = text.partition("=")
        if name not in _STEPS or not equals:
            raise _unreadable(text)
        try:
            given[name] = _value(name, value)
        except ValueError as error:
            raise _unreadable(text) from error
    return ImageSteps(**given)


def _value(name: str, text: str) -> Any:
    if (name == "color" and text in _MODES) or (name == "layout" and text in {"nchw", "nhwc"}):
        return text
    if name in {"resize", "crop"}:
        sizes = tuple(int(part) for part in text.split("x"))
        if not 1 <= len(sizes) <= 2 or min(sizes) < 1:
            raise ValueError(text)
        return sizes
    if name == "scale":
        return float(text)
    if name in {"mean", "std"}:
        return tuple(float(part) for part in text.split("/"))
    raise ValueError(text)


def _unreadable(text: str) -> ConfigError:
    hint = "Write --image resize=256,crop=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225,layout=nchw."
    return ConfigError("SM-CONFIG-001", f"--image {text!r} is no step", hint=hint)


def decode(data: bytes | None, steps: ImageSteps, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """One image, or a ValueError that says what is wrong with it."""
    image = _opened(data)
    if image.width * image.height > _PIXELS:
        raise ValueError(f"{image.width}x{image.height} pixels are too many")
    try:
        image = _eight_bits(image).convert(_MODES[steps.color])
        image = _cropped(_resized(image, steps.resize), steps.crop)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"the image cannot be decoded: {error}") from error
    pixels = np.asarray(image)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels[..., ::-1] if steps.color == "bgr" else pixels
    return np.ascontiguousarray(_scaled(pixels, steps, dtype).transpose(_axes(steps.layout)))


def _opened(data: bytes | None) -> Any:
    library = package("PIL.Image")
    if not data:
        raise ValueError("the image is empty")
    try:
        return library.open(io.BytesIO(data))
    except package("PIL").UnidentifiedImageError as error:  # its text holds an address in memory
        raise ValueError("no image of a known format") from error
    except Exception as error:
        # Decoders raise what their formats' code happens to raise.
        raise ValueError(f"no image: {str(error)[:100]}") from error


def _eight_bits(image: Any) -> Any:
    """Pillow's own conversion makes every gray of 16 bits beyond 255 white; of color it keeps the high byte."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        return package("PIL.Image").fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in {"I", "F"}:
        raise ValueError(f"its pixels (mode {image.mode}) have no range that is known")
    return image


def _axes(layout: str) -> tuple[int, int, int]:
    return (2, 0, 1) if layout == "nchw" else (0, 1, 2)


def _resized(image: Any, size: tuple[int, ...]) -> Any:
    if not size:
        return image
    if len(size) == 2:
        height, width = size
    elif image.width < image.height:
        width, height = size[0], max(1, round(image.height * size[0] / image.width))
    else:
        width, height = max(1, round(image.width * size[0] / image.height)), size[0]
    return image.resize((width, height), package("PIL.Image").Resampling.BILINEAR)


def _cropped(image: Any, size: tuple[int, ...]) -> Any:
    if not size:
        return image
    height, width = size if len(size) == 2 else (size[0], size[0])
    if image.height < height or image.width < width:
        raise ValueError(f"{image.height}x{image.width} is smaller than the crop {height}x{width}")
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _scaled(pixels: npt.NDArray[Any], steps: ImageSteps, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.kind != "f":
        return pixels.astype(dtype)
    scaled = pixels.astype(np.float32) / np.float32(steps.scale if steps.scale is not None else 255.0)
    if steps.mean:
        scaled = scaled - np.array(steps.mean, np.float32)
    if steps.std:
        scaled = scaled / np.array(steps.std, np.float32)
    return scaled.astype(dtype)


def image_bytes(cell: Any) -> bytes | None:
    """The bytes of a cell: binary, or Hugging Face's struct of bytes and path."""
    value = cell.as_py()
    if isinstance(value, Mapping):
        value = value.get("bytes")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return value if isinstance(value, bytes) else None
