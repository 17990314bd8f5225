"""The search of `smelt reduce`, with its processes and files.

Input: a loaded model and how it is compiled, or a command that tests it. Output: the reduced part, and a folder with a
script that shows the failure. Invariant: each try is a process with a time limit; whatever it does is an answer.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from smelt.base.config import Config
from smelt.base.errors import ConfigError, InputError, SmeltError
from smelt.check.bundle import Bundle
from smelt.check.cut import Cut, Cutter
from smelt.check.feed_files import read_feeds, write_feeds
from smelt.check.inputs import make_feeds
from smelt.check.reduce import Reduced, Told, reduce_model
from smelt.check.watch import Limits, Ran, run_worker
from smelt.cli.feeds import feed_attempts
from smelt.ir.save import save_model
from smelt.passes import run_passes

_PROBE = "smelt.cli.reduce_probe"
_SCRIPT = '''\
"""{failure}

Needs smelt and onnxruntime. Exits with 1 while the failure is there.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

import smelt

here = Path(__file__).parent
with np.load(here / "feeds.npz") as archive:
    feeds = {{str(name): archive[f"a{{i}}"] for i, name in enumerate(archive["names"])}}
stock = onnxruntime.InferenceSession(str(here / "model.onnx"), providers=["CPUExecutionProvider"])
expected = stock.run(None, feeds)
compiled = smelt.compile(here / "model.onnx", verify=False, **{options!r})
wrong = False
for output, got, wanted in zip(stock.get_outputs(), compiled.run(feeds), expected, strict=True):
    same = np.allclose(got, wanted, rtol=1e-4, atol=1e-5 * float(np.std(wanted) or 1), equal_nan=True)
    wrong |= not same
    print(output.name, got.dtype, got.shape, "as stock ONNX Runtime" if same else "DIFFERENT")
sys.exit(wrong)
'''


class Reduction:
    def __init__(
        self, model: ir.Model, options: Mapping[str, Any], test: str, timeout_s: float, config: Config
    ) -> None:
        self.model = model
        self.options = options
        self.test = shlex.split(test)
        if self.test and shutil.which(self.test[0]) is None:
            raise ConfigError("SM-CONFIG-001", f"--test: there is no program {self.test[0]!r}")
        self.limits = Limits(timeout_s, timeout_s, config.verify_memory_bytes)
        self.timeout_s = timeout_s
        self.cutter = Cutter(model, {})
        self.notes: list[str] = []

    # the values in the whole model

    def observe(
        self, shapes: Mapping[str, tuple[int, ...]], files: Mapping[str, Path], seed: int,
        recorded: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Run the whole model by stock ONNX Runtime, to feed its parts with what they get in it.

        `recorded`: the inputs of a call that was dumped with the model.
        """
        typed = self.model.clone()
        run_passes(typed, only=("infer-shapes",))
        with tempfile.TemporaryDirectory(prefix="smelt-reduce-") as name:
            folder = Path(name)
            bundle = Bundle(folder)
            bundle.add(typed, "watched.onnx", [value for node in typed.graph for value in node.outputs])
            bundle.close()
            failure = ""
            try:
                attempts = feed_attempts(typed, shapes, files, seed, "small") if recorded is None else (recorded,)
                for feeds in attempts:
                    ran = self._observed(folder, feeds)
                    if not ran.failure:
                        self.cutter = Cutter(self.model, read_feeds(folder / "values.npz"))
                        return
                    failure = failure or ran.failure
            except InputError as error:
                failure = error.message
        self.notes.append(f"the whole model could not be run ({failure}): parts get inputs that are made up")

    def _observed(self, folder: Path, feeds: Mapping[str, Any]) -> Ran:
        write_feeds(folder / "feeds.npz", feeds)
        job = {"mode": "observe", "model": "watched.onnx", "feeds": "feeds.npz", "values": "values.npz"}
        return run_worker(job, folder, self.limits, _PROBE)

    # the search

    def search(self, max_tries: int, told: Told) -> Reduced | None:
        return reduce_model(self.cutter, self.probe, told, max_tries)

    def probe(self, cut: Cut) -> str:
        """How a part fails; nothing when it does not, or when no try is possible."""
        with tempfile.TemporaryDirectory(prefix="smelt-reduce-") as name:
            folder = Path(name)
            if not write_part(folder, cut):
                return ""
            if self.test:
                return self._by_command(folder / "model.onnx")
            job = {"mode": "try", "model": "model.onnx", "feeds": "feeds.npz", "options": dict(self.options)}
            return _failure(run_worker(job, folder, self.limits, _PROBE))

    def _by_command(self, model: Path) -> str:
        try:
            ran = subprocess.run(
                [*self.test, str(model)], stdin=subprocess.DEVNULL, capture_output=True, timeout=self.timeout_s
            )
        except (subprocess.TimeoutExpired, OSError):
            return ""
        return f"`{shlex.join(self.test)}` exits with 0" if ran.returncode == 0 else ""


def _failure(ran: Ran) -> str:
    """In words that do not depend on names or numbers of the part."""
    if ran.failure:
        step = ran.last_step["at"]
        if step in ("start", "reference"):
            return ""  # stock ONNX Runtime's, not ours
        return f"the process {ran.failure.partition(':')[0]} in step '{step}'"
    return next((str(event["failure"]) for event in ran.events if "failure" in event), "")


def write_part(folder: Path, cut: Cut) -> bool:
    """The part and its inputs as files; false when no inputs can be made."""
    try:
        feeds = cut.feeds if cut.feeds is not None else make_feeds(cut.model, "small", 0)
        if feeds is None:
            return False
        save_model(cut.model, folder / "model.onnx")
    except SmeltError:
        return False
    write_feeds(folder / "feeds.npz", feeds)
    return True


def write_repro(folder: Path, found: Reduced, reduction: Reduction) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_part(folder, found.cut)
    if not reduction.test:
        options = {name: value for name, value in reduction.options.items() if value}
        script = _SCRIPT.format(failure=f"{found.failure[:1].upper()}{found.failure[1:]}.", options=options)
        (folder / "repro.py").write_text(script, encoding="utf-8")
