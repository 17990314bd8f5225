"""A compiled decoder generates the tokens of eager PyTorch. Needs torch and transformers."""

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from smelt.frontends.torch_compile import Listening

SIZES = {"tiny": (64, 2, 96), "small": (256, 4, 1000), "full": (768, 12, 32000)}


def decoder(scale: str) -> LlamaForCausalLM:
    """Random weights, large enough for the choices to be far apart."""
    width, layers, words = SIZES[scale]
    config = LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, eos_token_id=words - 1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5.0)
    return model


def generated(model: LlamaForCausalLM, tokens: int) -> tuple[torch.Tensor, float]:
    prompt = torch.arange(1, 9).unsqueeze(0)
    started = time.perf_counter()
    made = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
    )
    return made, (time.perf_counter() - started) / tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SIZES, default="tiny")
    parser.add_argument("--tokens", type=int, default=32)
    chosen = parser.parse_args()
    model = decoder(chosen.scale)
    wanted, eager_s = generated(model, chosen.tokens)
    model.compile(backend="smelt", dynamic=True)
    with Listening() as record:
        generated(model, chosen.tokens)
    found, smelt_s = generated(model, chosen.tokens)
    assert torch.equal(found, wanted), "the tokens differ"
    print(f"{chosen.tokens} tokens as eager's, {len(record.graphs)} graphs compiled")
    print(f"eager {eager_s * 1e3:.1f} ms, smelt {smelt_s * 1e3:.1f} ms a token")


if __name__ == "__main__":
    main()
