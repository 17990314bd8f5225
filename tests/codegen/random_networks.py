"""Random networks of convolutions, pools, normalizations, activations and views over images.

Input: a seed. Output: `Network`: a model, and inputs for each of its image sizes. Invariant: the same seed gives the
same network; every layer is defined at every one of the sizes, which are free or fixed; values stay of moderate size.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
SIZES = (1, 2, 3, 4, 7, 8, 14, 16, 23, 33, 40)
CHANNELS = (1, 3, 4, 8, 12, 16, 17, 32, 48)
MOST_ELEMENTS = 60_000
EPSILON = 1e-2  # rounding of rows of nearly equal values is not enlarged beyond what can be compared


@dataclass(frozen=True)
class Image:
    """A value of (batch, channels, height, width), with height and width for every size of the network."""

    name: str
    channels: int
    sizes: tuple[tuple[int, int], ...]


class Network:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.free = self.random.random() < 0.6
        count = 3 if self.free else 1
        chosen = tuple((self.random.choice(SIZES), self.random.choice(SIZES)) for _ in range(count))
        self.batches = tuple(self.random.choice((1, 2, 3)) for _ in range(count))
        self.free_batch = self.free and self.random.random() < 0.7
        if not self.free_batch:
            self.batches = self.batches[:1] * count
        self.values = [Image("x", self.random.choice(CHANNELS), chosen)]
        self.ends: list[str] = []
        for _ in range(self.random.randint(3, 14)):
            self._layer(self.values[-1 - min(self.random.randint(0, 3) // 2, len(self.values) - 1)])
        if self.random.random() < 0.3:
            self._head(self.values[-1])

    # what the test needs

    def model(self) -> onnx.ModelProto:
        first = self.values[0]
        size: list[Any] = ["h", "w"] if self.free else [*first.sizes[0]]
        batch = "n" if self.free_batch else self.batches[0]
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, first.channels, *size])]
        used = {name for node in self.nodes for name in node.input}
        ends = [v.name for v in self.values[1:] if v.name not in used or self.random.random() < 0.08] + self.ends
        out = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in dict.fromkeys(ends)]
        graph = helper.make_graph(self.nodes, "g", given, out, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

    def inputs(self) -> list[np.ndarray]:
        first = self.values[0]
        shapes = [(n, first.channels, *size) for n, size in zip(self.batches, first.sizes, strict=True)]
        return [self.numbers.standard_normal(shape).astype(np.float32) for shape in shapes]

    def text(self) -> str:
        """One line for each node, for a message."""
        shapes = {t.name: list(t.dims) for t in self.constants}
        lines = [f"x {self.values[0]} free={self.free} batches={self.batches}"]
        for node in self.nodes:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            given = [f"{name}{shapes.get(name, '')}" for name in node.input]
            lines.append(f"{', '.join(node.output)} = {node.op_type}({', '.join(given)}) {attributes}")
        return "\n".join(lines)

    # parts of a graph

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}"] + [f"v{len(self.nodes)}_{k}" for k in range(1, outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0]

    def constant(self, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def weights(self, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant((self.numbers.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def vector(self, size: int, low: float = -0.5, high: float = 0.5) -> str:
        return self.constant(self.numbers.uniform(low, high, size).astype(np.float32))

    def keep(self, name: str, channels: int, sizes: tuple[tuple[int, int], ...]) -> Image:
        self.values.append(Image(name, channels, sizes))
        return self.values[-1]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def _layer(self, x: Image) -> None:
        layers: list[Callable[[Image], None]] = [
            self._conv, self._conv, self._conv, self._pointwise, self._depthwise, self._depthwise, self._pool,
            self._pool, self._norm, self._activation, self._activation, self._squeeze_excite, self._residual,
            self._residual, self._concat, self._resize, self._pad, self._transposed, self._shuffle, self._tokens,
            self._separable, self._blocks, self._slice,
        ]  # fmt: skip
        self.random.choice(layers)(x)

    # windows

    def _window(self, x: Image, kernels: tuple[int, ...], most_stride: int = 3) -> tuple[dict[str, Any], Any] | None:
        """Attributes of a window, and the sizes that it gives; None where it does not fit an image."""
        kernel = (
            [self.random.choice(kernels) for _ in range(2)] if self.chance(0.3) else [self.random.choice(kernels)] * 2
        )
        stride = [self.random.choice((1, 1, 2, most_stride)) for _ in range(2)]
        stride = stride if self.chance(0.2) else stride[:1] * 2
        dilation = [2, 2] if self.chance(0.1) else [1, 1]
        attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
        if self.chance(0.1) and dilation == [1, 1] and all(k >= s for k, s in zip(kernel, stride, strict=True)):
            attributes["auto_pad"] = self.random.choice(("SAME_UPPER", "SAME_LOWER"))
            return attributes, tuple(tuple(-(-s // t) for s, t in zip(size, stride, strict=True)) for size in x.sizes)
        whole = [(k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True)]
        pads = [*whole, *whole] if self.chance(0.7) else [self.random.randint(0, k - 1) for k in (*kernel, *kernel)]
        attributes["pads"] = pads
        made = []
        for size in x.sizes:
            spans = [s + pads[a] + pads[a + 2] - (kernel[a] - 1) * dilation[a] - 1 for a, s in enumerate(size)]
            if min(spans) < 0:
                return None
            made.append(tuple(s // t + 1 for s, t in zip(spans, stride, strict=True)))
        return attributes, tuple(made)

    def _small(self, channels: int, sizes: tuple[tuple[int, int], ...]) -> bool:
        return all(channels * h * w <= MOST_ELEMENTS for h, w in sizes)

    def _convolve(self, x: Image, out: int, group: int, kernels: tuple[int, ...]) -> None:
        window = self._window(x, kernels)
        if window is None or not self._small(out, window[1]):
            return
        attributes, sizes = window
        inputs = [x.name, self.weights(out, x.channels // group, *attributes["kernel_shape"])]
        inputs += [self.vector(out)] if self.chance(0.7) else []
        made = self.add("Conv", inputs, group=group, **attributes)
        image = self.keep(made, out, sizes)
        if self.chance(0.5):
            self._activation(image)

    def _conv(self, x: Image) -> None:
        groups = [g for g in (1, 1, 1, 2, 4) if x.channels % g == 0]
        group = self.random.choice(groups)
        out = self.random.choice([c for c in CHANNELS if c % group == 0])
        self._convolve(x, out, group, (1, 2, 3, 3, 3, 5, 7))

    def _pointwise(self, x: Image) -> None:
        out = self.random.choice((*CHANNELS, 400))
        if self._small(out, x.sizes):
            inputs = [x.name, self.weights(out, x.channels, 1, 1), *([self.vector(out)] if self.chance(0.7) else [])]
            self.keep(self.add("Conv", inputs), out, x.sizes)

    def _depthwise(self, x: Image) -> None:
        self._convolve(x, x.channels * self.random.choice((1, 1, 1, 2)), x.channels, (2, 3, 3, 3, 5, 7))

    def _separable(self, x: Image) -> None:
        """As MobileNet and Xception have them: pixels, channel by channel, pixels; perhaps with a shortcut."""
        before = len(self.values)
        self._pointwise(x)
        self._activation(self.values[-1])
        self._depthwise(self.values[-1])
        self._pointwise(self.values[-1])
        if len(self.values) > before and self.chance(0.5):
            self._residual(self.values[-1])

    def _transposed(self, x: Image) -> None:
        kernel, stride = self.random.choice((1, 2, 3, 4)), self.random.choice((1, 2, 2, 3))
        pad = self.random.randint(0, (kernel - 1) // 2)
        extra = self.random.randint(0, stride - 1)
        sizes = tuple(tuple((s - 1) * stride + kernel - 2 * pad + extra for s in size) for size in x.sizes)
        group = x.channels if self.chance(0.2) else 1
        out = x.channels if group > 1 else self.random.choice(CHANNELS)
        if self._small(out, sizes) and min(s for size in sizes for s in size) >= 1:
            inputs = [x.name, self.weights(x.channels, out // group, kernel, kernel)]
            inputs += [self.vector(out)] if self.chance(0.5) else []
            made = self.add("ConvTranspose", inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
                            output_padding=[extra] * 2, group=group)  # fmt: skip
            self.keep(made, out, sizes)

    def _pool(self, x: Image) -> None:
        if self.chance(0.1):
            self.keep(self.add("GlobalAveragePool", [x.name]), x.channels, tuple((1, 1) for _ in x.sizes))
            return
        op = self.random.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
        window = self._window(x, (1, 2, 2, 3, 3, 5))
        if window is None:
            return
        attributes, sizes = window
        if "auto_pad" not in attributes and self.chance(0.4):
            attributes["ceil_mode"] = 1
            sizes = _rounded_up(x.sizes, attributes)
        if op == "AveragePool":
            attributes["count_include_pad"] = self.random.randint(0, 1)
        self.keep(self.add(op, [x.name], **attributes), x.channels, sizes)

    # normalizations and activations

    def _norm(self, x: Image) -> None:
        kind = self.random.choice(("batch", "batch", "instance", "group", "layer"))
        scale, shift = self.vector(x.channels, 0.5, 1.5), self.vector(x.channels)
        if kind == "batch":
            inputs = [x.name, scale, shift, self.vector(x.channels), self.vector(x.channels, 0.5, 1.5)]
            made = self.add("BatchNormalization", inputs, epsilon=EPSILON)
        elif kind == "instance":
            made = self.add("InstanceNormalization", [x.name, scale, shift], epsilon=EPSILON)
        elif kind == "group":
            groups = self.random.choice([g for g in (1, 2, 3, 4, 8) if x.channels % g == 0])
            made = self.add("GroupNormalization", [x.name, scale, shift], num_groups=groups, epsilon=EPSILON)
        else:
            last = self.add("Transpose", [x.name], perm=[0, 2, 3, 1])
            normal = self.add("LayerNormalization", [last, scale, shift], axis=-1, epsilon=EPSILON)
            made = self.add("Transpose", [normal], perm=[0, 3, 1, 2])
        self.keep(made, x.channels, x.sizes)

    def _activation(self, x: Image) -> None:
        kind = self.random.choice(("Relu", "Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Clip", "PRelu", "Gelu", "Elu",
                                   "Silu", "Softmax", "HardSigmoid"))  # fmt: skip
        if kind == "Clip":
            made = self.add("Clip", [x.name, *(self.constant(np.array(v, np.float32)) for v in (0, 6))])
        elif kind == "PRelu":
            slope = self.constant(self.numbers.uniform(0, 0.5, (x.channels, 1, 1)).astype(np.float32))
            made = self.add("PRelu", [x.name, slope])
        elif kind == "Silu":
            made = self.add("Mul", [x.name, self.add("Sigmoid", [x.name])])
        elif kind == "Softmax":
            made = self.add("Softmax", [x.name], axis=self.random.choice((1, -1)))
        else:
            made = self.add(kind, [x.name])
        self.keep(made, x.channels, x.sizes)

    # what joins images

    def _squeeze_excite(self, x: Image) -> None:
        inner = max(1, x.channels // self.random.choice((1, 2, 4)))
        mean = self.add("GlobalAveragePool", [x.name]) if self.chance(0.6) else self.add(
            "ReduceMean", [x.name, self.constant(np.array([2, 3]))], keepdims=1)  # fmt: skip
        down = self.add("Relu", [self.add("Conv", [mean, self.weights(inner, x.channels, 1, 1), self.vector(inner)])])
        up = self.add("Conv", [down, self.weights(x.channels, inner, 1, 1), self.vector(x.channels)])
        gate = self.add(self.random.choice(("Sigmoid", "HardSigmoid")), [up])
        self.keep(self.add("Mul", [x.name, gate]), x.channels, x.sizes)

    def _residual(self, x: Image) -> None:
        others = [v for v in self.values if v.sizes == x.sizes and v is not x and v.channels in (x.channels, 1)]
        if others:
            op = self.random.choice(("Add", "Add", "Add", "Mul", "Sub", "Max"))
            self.keep(self.add(op, [x.name, self.random.choice(others).name]), x.channels, x.sizes)
        elif self.values[0].sizes == x.sizes:
            first = self.values[0]
            side = self.add("Conv", [first.name, self.weights(x.channels, first.channels, 1, 1)])
            self.keep(self.add("Add", [x.name, side]), x.channels, x.sizes)

    def _concat(self, x: Image) -> None:
        others = [v for v in self.values if v.sizes == x.sizes]
        parts = [x, *(self.random.choice(others) for _ in range(self.random.randint(1, 2)))]
        channels = sum(p.channels for p in parts)
        if self._small(channels, x.sizes) and channels <= 128:
            self.keep(self.add("Concat", [p.name for p in parts], axis=1), channels, x.sizes)

    def _slice(self, x: Image) -> None:
        if x.channels < 2:
            return
        start, step = self.random.randint(0, x.channels - 1), self.random.choice((1, 1, 2, -1))
        end = -(2**40) if step < 0 else x.channels if self.chance(0.5) else self.random.randint(start + 1, x.channels)
        count = len(range(x.channels)[start : None if step < 0 else end : step])
        numbers = [self.constant(np.array([v])) for v in (start, end, 1, step)]
        self.keep(self.add("Slice", [x.name, *numbers]), count, x.sizes)

    # sizes and views

    def _resize(self, x: Image) -> None:
        scale = [self.random.choice((1, 2, 2, 3)) for _ in range(2)]
        sizes = tuple(tuple(s * t for s, t in zip(size, scale, strict=True)) for size in x.sizes)
        if not self._small(x.channels, sizes):
            return
        how = self.random.choice((
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
            {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        ))  # fmt: skip
        scales = self.constant(np.array([1, 1, *scale], np.float32))
        self.keep(self.add("Resize", [x.name, "", scales], **how), x.channels, sizes)

    def _pad(self, x: Image) -> None:
        least = min(s for size in x.sizes for s in size)
        mode = self.random.choice(("constant", "constant", "edge", "reflect"))
        most = 3 if mode != "reflect" else min(3, least - 1)
        pads = [self.random.randint(0, most) for _ in range(4)]
        sizes = tuple((h + pads[0] + pads[2], w + pads[1] + pads[3]) for h, w in x.sizes)
        if self._small(x.channels, sizes):
            numbers = self.constant(np.array([0, 0, *pads[:2], 0, 0, *pads[2:]], np.int64))
            self.keep(self.add("Pad", [x.name, numbers], mode=mode), x.channels, sizes)

    def _shuffle(self, x: Image) -> None:
        groups = [g for g in (2, 3, 4, 8) if x.channels % g == 0]
        if not groups:
            return
        g = self.random.choice(groups)
        shape = self.add("Shape", [x.name])
        apart = self.add("Reshape", [x.name, self.constant(np.array([0, g, x.channels // g, -1]))])
        turned = self.add("Transpose", [apart], perm=[0, 2, 1, 3])
        self.keep(self.add("Reshape", [turned, shape]), x.channels, x.sizes)

    def _tokens(self, x: Image) -> None:
        """Pixels as rows: normalization, product, attention; then an image again."""
        shape = self.add("Shape", [x.name])
        flat = self.add("Reshape", [x.name, self.constant(np.array([0, x.channels, -1]))])
        rows = self.add("Transpose", [flat], perm=[0, 2, 1])
        if self.chance(0.5):
            scale, shift = self.vector(x.channels, 0.5, 1.5), self.vector(x.channels)
            rows = self.add("LayerNormalization", [rows, scale, shift], axis=-1, epsilon=EPSILON)
        if self.chance(0.6):
            rows = self.add("MatMul", [rows, self.weights(x.channels, x.channels)])
        if self.chance(0.3) and all(h * w <= 600 for h, w in x.sizes):
            other = self.add("Transpose", [rows], perm=[0, 2, 1])
            scores = self.add("MatMul", [rows, other])
            factor = self.constant(np.array(0.3 / x.channels, np.float32))
            rows = self.add("MatMul", [self.add("Softmax", [self.add("Mul", [scores, factor])], axis=-1), rows])
        back = self.add("Transpose", [rows], perm=[0, 2, 1])
        self.keep(self.add("Reshape", [back, shape]), x.channels, x.sizes)

    def _blocks(self, x: Image) -> None:
        if x.channels % 4 == 0 and self.chance(0.6):
            sizes = tuple((2 * h, 2 * w) for h, w in x.sizes)
            made = self.add("DepthToSpace", [x.name], blocksize=2, mode=self.random.choice(("DCR", "CRD")))
            self.keep(made, x.channels // 4, sizes)
        elif all(s % 2 == 0 for size in x.sizes for s in size) and x.channels <= 16:
            sizes = tuple((h // 2, w // 2) for h, w in x.sizes)
            self.keep(self.add("SpaceToDepth", [x.name], blocksize=2), x.channels * 4, sizes)

    def _head(self, x: Image) -> None:
        mean = self.add("GlobalAveragePool", [x.name])
        flat = self.add("Flatten", [mean])
        made = self.add("Gemm", [flat, self.weights(10, x.channels), self.vector(10)], transB=1)
        self.ends.append(self.add("Softmax", [made], axis=-1) if self.chance(0.5) else made)


def _rounded_up(sizes: tuple[tuple[int, int], ...], window: dict[str, Any]) -> Any:
    made = []
    for size in sizes:
        counts = []
        for axis, s in enumerate(size):
            begin, end = window["pads"][axis], window["pads"][axis + 2]
            reach = (window["kernel_shape"][axis] - 1) * window["dilations"][axis] + 1
            step = window["strides"][axis]
            count = -(-(s + begin + end - reach) // step) + 1
            counts.append(count - 1 if (count - 1) * step >= s + begin else count)
        made.append(tuple(counts))
    return tuple(made)
