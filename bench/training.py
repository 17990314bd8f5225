"""What a step of training costs: forward and backward of BERT, in turns, in one process.

    python bench/training.py [--layers 12] [--batch 1] [--length 128] [--threads 2] [--peers smelt,inductor]

Every round runs two steps of each contestant and times the second, in an order that changes from round to round: in the
first one the threads of the contestant before still wait for work on the same cores. Printed are the ratio
eager / contestant over the rounds, estimated as `smelt bench` does it, with its 95% interval, and the median and lowest
time. A ratio above 1 is faster than eager. On a machine that others use, the time that the processor spent on a step
says more; with one thread nothing of it is waiting.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from smelt.bench.paired import paired_ratio

Step = Callable[[], tuple[float, float]]
PEERS: dict[str, dict[str, Any]] = {
    "smelt": {"backend": "smelt"},
    "kernels": {"backend": "smelt", "options": {"kernels": True}},
    "plain": {"backend": "smelt", "options": {"kernels": False}},
    "inductor": {"backend": "inductor"},
    "aot_eager": {"backend": "aot_eager"},
}


def model_of(layers: int, dropout: float) -> torch.nn.Module:
    config = BertConfig(
        num_hidden_layers=layers, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_labels=2
    )
    return BertForSequenceClassification(config).train()


def step(model: torch.nn.Module, run: Callable[..., Any], tokens: torch.Tensor, labels: torch.Tensor) -> Step:
    """One forward and one backward pass, whose gradients are dropped before the next."""

    def once() -> tuple[float, float]:
        model.zero_grad(set_to_none=True)
        started, spent = time.perf_counter(), time.process_time()
        run(input_ids=tokens, labels=labels).loss.backward()
        return time.perf_counter() - started, time.process_time() - spent

    return once


def contestants(chosen: argparse.Namespace) -> dict[str, Step]:
    torch.manual_seed(0)
    model = model_of(chosen.layers, chosen.dropout)
    tokens = torch.randint(0, 30000, (chosen.batch, chosen.length))
    labels = torch.randint(0, 2, (chosen.batch,))
    found = {"eager": step(model, model, tokens, labels)}
    for name in chosen.peers.split(","):
        torch._dynamo.reset()  # code objects are shared: each contestant is compiled by itself
        own = copy.deepcopy(model)
        found[name] = step(own, torch.compile(own, **PEERS[name]), tokens, labels)
        print(f"{name:10} first step, compilation included: {found[name]()[0]:.1f} s", flush=True)
    return found


def rounds(calls: dict[str, Step], count: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds by the clock and of the processor, round by round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(count):
        random.shuffle(order)
        for name in order:
            calls[name]()
            found[name].append(calls[name]())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 12), ("batch", 1), ("length", 128), ("threads", 2), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--peers", default="smelt,inductor")
    chosen = parser.parse_args()
    random.seed(0)
    torch.set_num_threads(chosen.threads)
    calls = contestants(chosen)
    rounds(calls, 2)
    found = rounds(calls, chosen.rounds)
    for name, both in found.items():
        taken, spent = ([pair[place] for pair in both] for place in (0, 1))
        ratio = paired_ratio([eager for eager, _ in found["eager"]], taken)
        print(
            f"{name:10} {ratio.value:5.2f} [{ratio.low:.2f}, {ratio.high:.2f}] of eager's speed, "
            f"median {1e3 * statistics.median(taken):7.1f} ms, lowest {1e3 * min(taken):7.1f} ms, "
            f"of the processor {1e3 * statistics.median(spent):7.1f} ms"
        )


if __name__ == "__main__":
    main()
