"""Train a small language model on the documentation, for where no trained weights are at hand.

    python bench/small_language_model.py OUT --seconds 120

Input: the Markdown files of docs/, but those held out. Output: a Hugging Face folder (config.json, safetensors, a
tokenizer of bytes). Held out: language_models.md, architecture.md and numerics.md, on which quality may be measured.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import transformers

from smelt.bench.llm_models import write_tokenizer

DOCS = Path(__file__).resolve().parent.parent / "docs"
HELD_OUT = {"language_models.md", "architecture.md", "numerics.md"}
TOKENS = 512
LENGTH, BATCH = 256, 8


def model() -> transformers.PreTrainedModel:
    config = transformers.Qwen2Config(
        vocab_size=TOKENS, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=False, pad_token_id=0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    torch.manual_seed(0)
    write_tokenizer(given.out, TOKENS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.out, local_files_only=True)
    text = "\n".join(path.read_text() for path in sorted(DOCS.rglob("*.md")) if path.name not in HELD_OUT)
    data = torch.tensor(tokenizer(text)["input_ids"])
    made, started, step, loss = model(), time.monotonic(), 0, float("nan")
    optimizer = torch.optim.AdamW(made.parameters(), lr=2e-3, weight_decay=0.05)
    while time.monotonic() - started < given.seconds:
        rate = min(1.0, (step + 1) / 50) * max(0.05, 1 - (time.monotonic() - started) / given.seconds)
        optimizer.param_groups[0]["lr"] = 2e-3 * rate
        at = torch.randint(0, len(data) - LENGTH, (BATCH,))
        batch = torch.stack([data[a : a + LENGTH] for a in at])
        found = made(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        found.backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        step, loss = step + 1, float(found)
    made.save_pretrained(given.out)
    print(f"{step} steps of {BATCH * LENGTH} tokens of {len(data)}, loss {loss:.3f}: {given.out}")


if __name__ == "__main__":
    main()
