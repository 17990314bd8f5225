"""The decoder of a GGUF model as an ONNX model, in the form that onnxruntime-genai runs.

Input: `GgufModel` and an accuracy level of MatMulNBits. Output: an ONNX model with its weights in a file beside it.
Invariant: blocks stay as they are; past and present keys and values may share memory; logits are those of the last
position. Inputs and outputs have the names of genai's own model builder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from smelt.frontends.gguf_blocks import Blocks
from smelt.frontends.gguf_file import GgufModel, GgufTensor

Array = np.ndarray[Any, Any]
MODEL: Final = "model.onnx"
_DATA: Final = "model.onnx.data"
_MICROSOFT: Final = "com.microsoft"


def write_decoder(model: GgufModel, folder: Path, level: int) -> None:
    made = _Decoder(model, level).model()
    onnx.save(made, folder / MODEL, save_as_external_data=True, location=_DATA, size_threshold=1024)


class _Decoder:
    """The graph while it is written."""

    def __init__(self, model: GgufModel, level: int) -> None:
        self.source, self.sizes, self.level = model, model.sizes, level
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, onnx.TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        s = self.sizes
        self._positions()
        hidden, residual = self._embedding(), ""
        for layer in range(s.layers):
            normed, residual = self._norm(f"blk.{layer}.attn_norm.weight", hidden, residual)
            hidden = self._attention(layer, normed)
            normed, residual = self._norm(f"blk.{layer}.ffn_norm.weight", hidden, residual)
            hidden = self._feed_forward(layer, normed)
        normed, _ = self._norm("output_norm.weight", hidden, residual)
        self._logits(normed)
        graph = helper.make_graph(self.nodes, "decoder", self._inputs(), self._outputs(), list(self.held.values()))
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    # borders

    def _inputs(self) -> list[onnx.ValueInfoProto]:
        ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"])
        mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch_size", "total_length"])
        return [ids, mask, *self._caches("past_key_values", "past_length")]

    def _outputs(self) -> list[onnx.ValueInfoProto]:
        sizes = ["batch_size", 1, self.sizes.tokens]
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, sizes)
        return [logits, *self._caches("present", "total_length")]

    def _caches(self, name: str, length: str) -> list[onnx.ValueInfoProto]:
        sizes = ["batch_size", self.sizes.kv_heads, length, self.sizes.depth]
        names = [f"{name}.{layer}.{kind}" for layer in range(self.sizes.layers) for kind in ("key", "value")]
        return [helper.make_tensor_value_info(one, TensorProto.FLOAT, sizes) for one in names]

    # pieces

    def _node(self, op: str, inputs: list[str], output: str, *more: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output, *more], output, domain=domain, **attributes))
        return output

    def _hold(self, name: str, array: Array) -> str:
        if name not in self.held:
            self.held[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def _vector(self, name: str, size: int) -> str:
        return self._hold(name, self.source.tensor(name, size).floats())

    def _positions(self) -> None:
        """The number of keys of each sequence less one, that of the longest, and the rotary tables."""
        ones = self._hold("one", np.array([1], np.int64))
        total = self._node("ReduceSum", ["attention_mask", ones], "total", keepdims=0)
        self._node("Cast", [self._node("Sub", [total, ones], "last64")], "last", to=TensorProto.INT32)
        shape = self._node("Shape", ["attention_mask"], "mask_shape")
        length = self._node("Gather", [shape, self._hold("axis", np.array(1, np.int64))], "length64")
        self._node("Cast", [length], "length", to=TensorProto.INT32)
        angles = self._angles()
        self._hold("cos_cache", np.cos(angles).astype(np.float32))
        self._hold("sin_cache", np.sin(angles).astype(np.float32))

    def _angles(self) -> Array:
        s = self.sizes
        speeds = s.rope_base ** (-np.arange(0, s.depth, 2, dtype=np.float64) / s.depth)
        if "rope_freqs.weight" in self.source.tensors:
            speeds = speeds / self.source.tensor("rope_freqs.weight", s.depth // 2).floats()
        return np.arange(s.context, dtype=np.float64)[:, None] * s.rope_scale * speeds

    def _embedding(self) -> str:
        s, name = self.sizes, "token_embd.weight"
        table = self.source.tensor(name, s.tokens, s.hidden)
        blocks = table.blocks()
        if blocks is None or blocks.zeros is not None:
            return self._node("Gather", [self._hold(name, table.floats()), "input_ids"], "embedding")
        packed, scales = self._blocks(name, blocks)
        shape = self._hold("table_shape", np.array([s.tokens, s.hidden * blocks.bits // 8], np.int64))
        flat = self._node("Reshape", [packed, shape], "table")
        how = {"bits": blocks.bits, "block_size": blocks.size, "gather_axis": 0, "quantize_axis": 1}
        inputs = [flat, "input_ids", scales]
        return self._node("GatherBlockQuantized", inputs, "embedding", domain=_MICROSOFT, **how)

    def _blocks(self, name: str, blocks: Blocks) -> tuple[str, str]:
        return self._hold(f"{name}.blocks", blocks.weights), self._hold(f"{name}.scales", blocks.scales)

    def _norm(self, name: str, hidden: str, residual: str) -> tuple[str, str]:
        """Of the sum with the residual, and that sum."""
        weight, out = self._vector(name, self.sizes.hidden), name.replace("weight", "out")
        how: dict[str, Any] = {"epsilon": self.sizes.epsilon}
        if not residual:
            return self._node("SimplifiedLayerNormalization", [hidden, weight], out, axis=-1, **how), hidden
        total = f"{out}.sum"
        inputs = [hidden, residual, weight]
        self._node("SkipSimplifiedLayerNormalization", inputs, out, "", "", total, domain=_MICROSOFT, **how)
        return out, total

    def _product(self, left: str, name: str, columns: int, depth: int, out: str) -> str:
        tensor, bias = self.source.tensor(f"{name}.weight", columns, depth), ""
        if f"{name}.bias" in self.source.tensors:
            bias = self._vector(f"{name}.bias", columns)
        blocks = tensor.blocks()
        if blocks is None:
            return self._plain_product(left, tensor, bias, out)
        inputs = [left, *self._blocks(tensor.name, blocks)]
        zeros = "" if blocks.zeros is None else self._hold(f"{tensor.name}.zeros", blocks.zeros)
        inputs += [zeros, "", bias] if bias else [zeros] if zeros else []
        how = {"K": depth, "N": columns, "bits": blocks.bits, "block_size": blocks.size, "accuracy_level": self.level}
        return self._node("MatMulNBits", inputs, out, domain=_MICROSOFT, **how)

    def _plain_product(self, left: str, tensor: GgufTensor, bias: str, out: str) -> str:
        matrix = self._hold(f"{tensor.name}.matrix", tensor.floats().T)
        if not bias:
            return self._node("MatMul", [left, matrix], out)
        return self._node("Add", [self._node("MatMul", [left, matrix], f"{out}.product"), bias], out)

    def _attention(self, layer: int, normed: str) -> str:
        s, at = self.sizes, f"blk.{layer}"
        widths = {"q": s.heads * s.depth, "k": s.kv_heads * s.depth, "v": s.kv_heads * s.depth}
        parts = [self._product(normed, f"{at}.attn_{n}", w, s.hidden, f"{at}.{n}") for n, w in widths.items()]
        caches = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        how = {
            "num_heads": s.heads, "kv_num_heads": s.kv_heads, "scale": float(s.depth**-0.5), "do_rotary": 1,
            "rotary_interleaved": int(s.interleaved),
        }  # fmt: skip
        inputs = [*parts, *caches, "last", "length", "cos_cache", "sin_cache"]
        present = [f"present.{layer}.key", f"present.{layer}.value"]
        made = self._node("GroupQueryAttention", inputs, f"{at}.attended", *present, domain=_MICROSOFT, **how)
        return self._product(made, f"{at}.attn_output", s.hidden, widths["q"], f"{at}.attn_out")

    def _feed_forward(self, layer: int, normed: str) -> str:
        s, at = self.sizes, f"blk.{layer}"
        gate = self._product(normed, f"{at}.ffn_gate", s.inner, s.hidden, f"{at}.gate")
        up = self._product(normed, f"{at}.ffn_up", s.inner, s.hidden, f"{at}.up")
        silu = self._node("Mul", [gate, self._node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        both = self._node("Mul", [silu, up], f"{at}.gated")
        return self._product(both, f"{at}.ffn_down", s.hidden, s.inner, f"{at}.ffn_out")

    def _logits(self, normed: str) -> None:
        s = self.sizes
        end = self._hold("end", np.array([-1], np.int64))
        last = self._node("Gather", [normed, end], "last_row", axis=1)
        tied = "output.weight" not in self.source.tensors
        self._product(last, "token_embd" if tied else "output", s.tokens, s.hidden, "logits")
