"""Hugging Face's `generate()` over compiled models: the tokens of eager, and no more compilations than aot_eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import smelt
from smelt.frontends.torch_compile import Listening

transformers = pytest.importorskip("transformers")

PLAIN = {"kernels": False}
TOKENS: dict[str, Any] = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 95, "pad_token_id": 0}
LAYERS: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA: dict[str, Any] = {**TOKENS, **LAYERS, "num_key_value_heads": 2, "max_position_embeddings": 320}


def gpt2() -> Any:
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=320, **TOKENS)
    return transformers.GPT2LMHeadModel(config)


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))


def shallow() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": 1}))


def qwen2() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**LLAMA))


def t5() -> Any:
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, **TOKENS
    )
    return transformers.T5ForConditionalGeneration(config)


def bart() -> Any:
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
    }
    config = transformers.BartConfig(
        d_model=32,
        max_position_embeddings=320,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
        tie_word_embeddings=False,
        **sides,
        **TOKENS,
    )
    return transformers.BartForConditionalGeneration(config)


DECODERS = [gpt2, llama, qwen2]
MODELS = [*DECODERS, t5, bart]


def clear_cut(make: Callable[[], Any]) -> Any:
    """A model with random weights that are large enough for its choices to be far apart."""
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5.0)
    return model


class Counting:
    """What aot_eager does, with the graphs counted."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        return aot_autograd(fw_compiler=self._compile, inference_compiler=self._compile)(graph, inputs)

    def _compile(self, graph: Any, inputs: Any) -> Any:
        from functorch.compile import make_boxed_func

        self.graphs += 1
        return make_boxed_func(graph.forward)


def generated(model: Any, tokens: int, **how: Any) -> torch.Tensor:
    prompt = torch.arange(14).reshape(2, 7) * 5 + 3
    mask = torch.ones_like(prompt)
    if not model.config.is_encoder_decoder:
        prompt[0, :2], mask[0, :2] = 0, 0  # a shorter prompt, filled up from the left
    with torch.no_grad():
        return model.generate(
            prompt, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **how
        )


def compiled(make: Callable[[], Any], backend: Any, dynamic: bool | None) -> Any:
    torch._dynamo.reset()
    model = clear_cut(make)
    options = {"options": PLAIN} if backend == "smelt" else {}
    model.compile(backend=backend, dynamic=dynamic, **options)
    return model


def check(make: Callable[[], Any], dynamic: bool | None, tokens: int, **how: Any) -> int:
    """Compare the tokens with eager's; tell how often was compiled."""
    return _check(make, compiled(make, "smelt", dynamic), tokens, **how)


def _check(make: Callable[[], Any], model: Any, tokens: int, **how: Any) -> int:
    with Listening() as record:
        found = generated(model, tokens, **how)
    wanted = generated(clear_cut(make), tokens, **how)
    assert torch.equal(found, wanted)
    assert len(set(wanted.flatten().tolist())) > 8  # not one token over and over
    assert record.graphs and not record.fallbacks and not record.fallback_nodes
    return len(record.graphs)


def test_a_decoder_is_compiled_once_for_the_prompt_and_once_for_all_tokens_after_it():
    assert check(shallow, True, 24) == 2


def test_a_wrapped_decoder_generates_with_two_compilations():
    assert _check(shallow, smelt.compile(clear_cut(shallow), **PLAIN), 16) == 2


@pytest.mark.full
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("make", MODELS)
def test_every_wrapped_model_generates_the_tokens_of_eager(make: Callable[[], Any], cache: str, beams: int):
    counting = Counting()
    how = {"num_beams": beams, "cache_implementation": cache}
    generated(compiled(make, counting, True), 40, **how)
    torch._dynamo.reset()
    assert _check(make, smelt.compile(clear_cut(make), **PLAIN), 40, **how) <= counting.graphs


@pytest.mark.full
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("make", DECODERS)
def test_two_hundred_tokens_of_a_decoder_take_two_compilations(make: Callable[[], Any], beams: int):
    assert check(make, True, 200, num_beams=beams) == 2


@pytest.mark.full
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("make", MODELS)
def test_two_hundred_tokens_take_no_more_compilations_than_with_aot_eager(
    make: Callable[[], Any], cache: str, beams: int
):
    counting = Counting()
    how = {"num_beams": beams, "cache_implementation": cache}
    generated(compiled(make, counting, None), 200, **how)
    assert check(make, None, 200, **how) <= counting.graphs
