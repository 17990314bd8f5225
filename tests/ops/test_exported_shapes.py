"""Transformers as torch exports them, with free batch and length: every size is an exact expression of input sizes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import shapes

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTHS = [(2, 7), (3, 12), (1, 1), (1, 5)]
SMALL = {"vocab_size": 99, "use_cache": False}


def bert() -> Any:
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return transformers.BertModel(transformers.BertConfig(**SMALL, **size))


def gpt2() -> Any:
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL, **size))


def llama() -> Any:
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.LlamaConfig(**SMALL, **size, num_key_value_heads=2, max_position_embeddings=128)
    return transformers.LlamaForCausalLM(config)


def t5() -> Any:
    size = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**SMALL, **size))


class Positional(torch.nn.Module):
    """Fixes the order of arguments, which the exporters would otherwise take from the model's own signature."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Any) -> Any:
        named = dict(zip(self.names, args, strict=True))
        return self.model(**named, return_dict=False, use_cache=False)[0]


def inputs_of(make: Callable[[], Any]) -> list[str]:
    return ["input_ids", "attention_mask"] + (["decoder_input_ids"] if make is t5 else [])


def sample(names: list[str], batch: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        n: np.ones((batch, length), np.int64) if "mask" in n else rng.integers(0, 90, (batch, length)) for n in names
    }


def exported(make: Callable[[], Any], attention: str, dynamo: bool) -> onnx.ModelProto:
    torch.manual_seed(0)
    names = inputs_of(make)
    model = make().eval()
    model.set_attn_implementation(attention)
    args = tuple(torch.from_numpy(a) for a in sample(names, 2, 7).values())
    sizes = {0: "batch", 1: "seq"}
    settings: dict[str, Any] = {"dynamic_axes": dict.fromkeys(names, sizes), "opset_version": 17}
    if dynamo:
        settings = {"dynamic_shapes": {"args": (sizes,) * len(names)}, "verbose": False, "external_data": False}
    target = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        wrapped = Positional(model, names)
        torch.onnx.export(wrapped, args, target, input_names=names, dynamo=dynamo, **settings)
    return onnx.load_from_string(target.getvalue())


def check(make: Callable[[], Any], attention: str, dynamo: bool) -> None:
    model = exported(make, attention, dynamo)
    facts = shapes.compare_shapes(model, *(sample(inputs_of(make), *size) for size in LENGTHS))
    assert not shapes.run_time_symbols(facts)
    known = {v.name for v in facts.by_value}
    assert [o for n in model.graph.node for o in n.output if o and o not in known] == []
    refused = {n.op_type: r for n, r in facts.unsupported.items() if n.op_type not in ("MatMul", "Gemm")}
    assert all("stays in the model" in r for r in refused.values()), refused
    longest = max((repr(s) for f in facts.by_value.values() for s in f.shape), key=len)
    assert len(longest) <= len("d:batch*d:seq*4 + min(d:seq, 512)"), longest


@pytest.mark.parametrize("make", [bert, gpt2, llama, t5], ids=lambda f: f.__name__)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_traced_export(make: Callable[[], Any], attention: str) -> None:
    check(make, attention, dynamo=False)


@pytest.mark.full
@pytest.mark.parametrize("make", [bert, gpt2, llama, t5], ids=lambda f: f.__name__)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_graph_export(make: Callable[[], Any], attention: str) -> None:
    check(make, attention, dynamo=True)


class Decoder(torch.nn.Module):
    """One decoding step: new tokens, and keys and values of the earlier ones for each of two layers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, mask: Any, k0: Any, v0: Any, k1: Any, v1: Any) -> Any:
        cache = transformers.DynamicCache(((k0, v0), (k1, v1)))
        out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        layers = out.past_key_values.layers
        return (out.logits, *(t for layer in layers for t in (layer.keys, layer.values)))


def test_decoding_step_with_a_cache() -> None:
    names = ["ids", "mask", "k0", "v0", "k1", "v1"]
    model = llama().eval()
    free = {"ids": {0: "batch", 1: "new"}, "mask": {0: "batch", 1: "all"}}
    free |= {n: {0: "batch", 2: "past"} for n in names[2:]}

    def step(batch: int, new: int, past: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        cache = {n: rng.standard_normal((batch, 2, past, 8)).astype(np.float32) for n in names[2:]}
        return {"ids": rng.integers(0, 90, (batch, new)), "mask": np.ones((batch, past + new), np.int64), **cache}

    target = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        args = tuple(torch.from_numpy(a) for a in step(2, 3, 5).values())
        torch.onnx.export(
            Decoder(model), args, target, input_names=names, dynamic_axes=free, dynamo=False, opset_version=17
        )
    proto = onnx.load_from_string(target.getvalue())
    facts = shapes.compare_shapes(proto, step(2, 3, 5), step(1, 1, 9), step(3, 2, 2))
    assert not shapes.run_time_symbols(facts)
    assert {o for n in proto.graph.node for o in n.output if o} <= {v.name for v in facts.by_value}
    present = {repr(f.shape[2]) for v, f in facts.by_value.items() if v.is_graph_output() and len(f.shape) == 4}
    assert present in ({"d:past + d:new"}, {"d:new + d:past"}), present
