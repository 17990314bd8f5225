"""A block of a diffusion UNet, in plain torch.

Input: channels, width of the time embedding, heads, groups. Output: a module (sample, time) -> sample. Invariant: it
has one of everything that such networks are made of: residual blocks with a time shift, a strided convolution down,
attention over pixels, a nearest-neighbour step up, a skip connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def unet_block(settings: Mapping[str, Any]) -> Any:
    import torch

    nn = cast("Any", torch.nn)
    functional = nn.functional
    channels, embedding = int(settings["channels"]), int(settings["embedding"])
    heads, groups = int(settings["heads"]), int(settings["groups"])

    class Residual(torch.nn.Module):
        def __init__(self, source: int, target: int) -> None:
            super().__init__()
            self.before, self.after = nn.GroupNorm(groups, source), nn.GroupNorm(groups, target)
            self.first, self.second = nn.Conv2d(source, target, 3, padding=1), nn.Conv2d(target, target, 3, padding=1)
            self.time = nn.Linear(embedding, target)
            self.skip = nn.Identity() if source == target else nn.Conv2d(source, target, 1)

        def forward(self, x: Any, time: Any) -> Any:
            found = self.first(functional.silu(self.before(x)))
            found = found + self.time(functional.silu(time))[:, :, None, None]
            return self.skip(x) + self.second(functional.silu(self.after(found)))

    class Attention(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(groups, width)
            self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            batch, width, high, wide = x.shape
            pixels = self.norm(x).flatten(2).transpose(1, 2)
            parts = self.inputs(pixels).chunk(3, dim=-1)
            q, k, v = (part.reshape(batch, high * wide, heads, width // heads).transpose(1, 2) for part in parts)
            found = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, high * wide, width)
            return x + self.output(found).transpose(1, 2).reshape(batch, width, high, wide)

    class UnetBlock(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.down = Residual(channels, channels), nn.Conv2d(channels, channels, 3, 2, padding=1)
            self.deep, self.attention = Residual(channels, 2 * channels), Attention(2 * channels)
            self.up, self.leave = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), Residual(3 * channels, channels)

        def forward(self, sample: Any, time: Any) -> Any:
            kept = self.enter(sample, time)
            deep = self.attention(self.deep(self.down(kept), time))
            raised = self.up(functional.interpolate(deep, scale_factor=2.0, mode="nearest"))
            return self.leave(torch.cat([raised, kept], dim=1), time)

    return UnetBlock()
