"""Architectures of timm with random weights, as ONNX files of two exporters.

Input: names of architectures. Output: files in the cache folder, with a free batch. Invariant: timm is installed into a
folder of the cache, never into the environment; weights are seeded and what initialization hides (batch statistics,
layer scales, gains of zero) is moved away from it; a file is complete or absent, and its name carries all that made it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from smelt.base import Config
from smelt.base.config import child_environment
from smelt.bench.contestant import import_path
from smelt.bench.real.wheels import FetchError

Exporter = Literal["torch", "smelt"]

_FORMAT: Final = 1  # changes when what is written for one name changes
_PACKAGES: Final = ("timm==1.0.31", "torchvision==0.28.0", "pillow==13.0.0")
_PATIENCE_S: Final = 1800.0

# Of every family one or two, mostly the small ones: it is the graphs that differ. `@` is the image's side.
ARCHITECTURES: Final = (
    "resnet18", "resnet26d", "resnetv2_50", "resnext26ts", "seresnext26d_32x4d", "skresnet18", "ecaresnet26t",
    "resnest14d", "res2net50_14w_8s", "densenet121", "dla34", "vgg11_bn", "mobilenetv2_100", "mobilenetv3_small_100",
    "mobilenetv4_conv_small", "efficientnet_b0", "efficientnetv2_rw_t", "tf_efficientnet_lite0", "mixnet_s",
    "fbnetv3_b", "ghostnet_100", "lcnet_050", "regnetx_004", "regnety_004", "regnetz_b16", "rexnet_100", "repvgg_a0",
    "mobileone_s0", "repvit_m1", "hgnetv2_b0", "cspresnet50", "gernet_s", "xception41@160", "inception_next_atto",
    "convnext_atto", "convnextv2_atto", "edgenext_xx_small", "mobilevit_xxs", "mobilevitv2_050",
    "coatnet_pico_rw_224", "maxvit_rmlp_pico_rw_256", "vit_tiny_patch16_224", "levit_128s", "pit_ti_224",
    "swin_tiny_patch4_window7_224", "pvt_v2_b0", "poolformer_s12", "mixer_s32_224", "gmlp_ti16_224", "resmlp_12_224",
    "xcit_nano_12_p16_224", "cait_xxs24_224", "efficientformer_l1", "fastvit_t8", "starnet_s1", "crossvit_9_240",
    "hrnet_w18_small", "sequencer2d_s", "botnet26t_256", "efficientvit_b0",
)  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """`name` as timm has it, the image's side (0: the default one), and who writes the file."""

    name: str
    side: int
    exporter: Exporter

    @property
    def label(self) -> str:
        return f"timm/{self.name}"


def architectures() -> list[Architecture]:
    """Both exporters take turns, so that each kind of graph has been through one of them."""
    made: list[Architecture] = []
    for place, text in enumerate(ARCHITECTURES):
        name, _, side = text.partition("@")
        made.append(Architecture(name, int(side or 0), "smelt" if place % 2 else "torch"))
    return made


def file_of(one: Architecture, config: Config) -> Path:
    facts = [_FORMAT, one.name, one.side, one.exporter, _PACKAGES, _versions()]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    return config.cache_dir / "real" / f"timm-{one.name}-{digest}" / "model.onnx"


def _versions() -> list[str]:
    """Packages that decide what is written; none are installed where nothing is exported."""
    found: list[str] = []
    for package in ("torch", "onnxscript"):
        try:
            found.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            found.append("")
    return found


def export_all(wanted: Sequence[Architecture], config: Config) -> dict[str, str]:
    """Write the files that are missing, in one process; what went wrong by name."""
    missing = [one for one in wanted if not file_of(one, config).is_file()]
    if not missing:
        return {}
    library = _installed(config)
    jobs = [[one.name, one.side, one.exporter, str(file_of(one, config))] for one in missing]
    path = f"{library}:{import_path()['PYTHONPATH']}"
    command = [sys.executable, "-P", "-W", "ignore", "-m", "smelt.bench.real.timm_export"]
    process = subprocess.run(
        command, input=json.dumps(jobs), env=child_environment({"PYTHONPATH": path}), capture_output=True, text=True,
        timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    problems = {name: str(why) for name, why in map(json.loads, process.stdout.splitlines()) if why}
    last = (process.stderr.strip().splitlines() or [f"its process ended ({process.returncode})"])[-1]
    return {
        one.name: problems.get(one.name, f"not exported: {last[:200]}")
        for one in missing
        if not file_of(one, config).is_file()
    }


def _installed(config: Config) -> Path:
    """The folder that timm is imported from."""
    digest = hashlib.sha256(json.dumps(_PACKAGES).encode()).hexdigest()[:12]
    folder = config.cache_dir / "real" / f"timm-library-{digest}"
    if not (folder / "timm").is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *_PACKAGES]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise FetchError(f"timm cannot be installed: {error}") from None
    return folder
