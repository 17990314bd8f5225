"""The measurements that the project is judged by, each one command.

Input: a run's name. Output: what it times. Invariant: a run is data: models, sizes, peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from smelt.base import Config, ConfigError
from smelt.bench import zoo
from smelt.bench.cases import USUAL, Case, Size, suite_cases
from smelt.bench.quantized import QUANTIZED

_EVERYBODY: Final = (
    "ort", "smelt", "ort-fused", "openvino", "inductor", "inductor-freezing", "inductor-max", "eager",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A suite at some sizes against some peers: so many rounds, each peer's turn so many seconds long."""

    name: str
    about: str
    suite: str
    sizes: tuple[Size, ...] = (USUAL,)
    peers: tuple[str, ...] = _EVERYBODY
    rounds: int = 15
    seconds: float = 0.25

    def cases(self, config: Config, scale: zoo.Scale, only: Sequence[str] = ()) -> list[Case]:
        """All cases, or those whose model is named."""
        wanted = {name if name in QUANTIZED else zoo.find_model(name).name for name in only}
        found = suite_cases(self.suite, config, self.sizes, scale, only=wanted)
        if wanted and not found:
            raise ConfigError("SM-CONFIG-005", f"run {self.name!r} has none of {', '.join(sorted(wanted))}")
        return found


_RUNS: Final = (
    Run("micro", "small graphs that show one thing each", "micro"),
    Run(
        "gemm", "matrix products alone, as shares of the machine's limits", "gemm", peers=("ort", "smelt", "openvino"),
        rounds=11, seconds=0.04,
    ),
    Run("models", "full-size models, batch 1, 128 tokens or 224x224", "models"),
    Run(
        "sizes", "the same models at batch 8, at 37 and at 512 tokens: one artifact for all", "models",
        (Size(8, 128), Size(1, 37), Size(1, 512)),
    ),
    Run(
        "decode", "one token after 128 and after 512 others: tokens per second", "decode",
        (Size(1, 128), Size(1, 512)),
    ),
    Run(
        "int8", "quantized models beside their float32 ones", "int8",
        peers=("ort", "smelt", "openvino", "ort-fp32", "smelt-fp32"), rounds=11,
    ),
    Run(
        "bf16", "float32 files in bfloat16", "bf16",
        peers=("ort", "smelt", "smelt-fp32", "openvino-bf16", "inductor-bf16"), rounds=11,
    ),
    Run(
        "int4", "weights of 4 bits in blocks beside float32", "int4",
        peers=("ort", "smelt", "openvino", "ort-fp32", "smelt-fp32"), rounds=11,
    ),
    Run("igniter", "the models that ahead-of-time fusion was first shown on", "igniter", peers=("ort", "smelt")),
)  # fmt: skip
RUNS: Final[dict[str, Run]] = {run.name: run for run in _RUNS}


def find_run(name: str) -> Run:
    found = RUNS.get(name)
    if found is None:
        raise ConfigError("SM-CONFIG-005", f"there is no run {name!r}", hint=f"Known are {', '.join(RUNS)} and goals.")
    return found
