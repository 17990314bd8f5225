"""`smelt bugreport`: all that somebody else needs to look at a model that went wrong, in one file.

Input: a model. Output: a zip: versions and machine, what compilation said (its plan, findings, faults, log), the model
without its weights. Invariant: the model is compiled in a process of its own, so that a crash is in the report too; no
tensor of a kilobyte or more is in it, and no folder names of the user's home.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

Target = Annotated[Path, typer.Option("-o", "--output", metavar="FILE.zip", help="File to write.", show_default=False)]
Limit = Annotated[float, typer.Option("--limit", metavar="SECONDS", min=1, help="How long compilation may take.")]
_KEPT_BYTES: Final = 1024


def register(app: typer.Typer) -> None:
    app.command("bugreport")(bugreport_command)


def bugreport_command(
    model: opt.ModelPath,
    output: Target = Path(),
    limit: Limit = 900.0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Pack versions, plan, findings, log and the model without its weights into one file, to be sent to somebody."""
    with reporting(as_json, verbose, quiet) as out:
        place = output if output != Path() else Path(f"{model.stem}.bugreport.zip")
        light = _light_model(model)
        files = {"machine.json": _machine(), **_compilation(model, limit)}
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(name, _without_home(content))
            packed.writestr(*light)
        out.lines(
            "It holds versions, the plan, findings, a log, and the model's structure:",
            f"names of nodes and tensors, and tensors smaller than {_KEPT_BYTES} bytes. Look at it before you send it.",
        )
        out.result(str(place))
        out.facts(output=str(place), files=[*files, light[0]])


def _light_model(path: Path) -> tuple[str, bytes]:
    """The model without weights; where it cannot be read, what was said about it."""
    from smelt.base.errors import SmeltError
    from smelt.ir.light import lighten
    from smelt.ir.load import load_model
    from smelt.ir.save import save_model

    try:
        loaded = load_model(path)
        lighten(loaded, _KEPT_BYTES)
        with tempfile.TemporaryDirectory(prefix="smelt-") as folder:
            saved = save_model(loaded, Path(folder) / "model.onnx", min_bytes=1 << 40)
            return "model.light.onnx", saved.model_path.read_bytes()
    except SmeltError as error:
        if not path.is_file():
            raise
        return "model.unreadable.txt", str(error).encode()


def _machine() -> str:
    from dataclasses import asdict

    from smelt.base.config import KNOBS, Config
    from smelt.base.errors import SmeltError
    from smelt.base.target import host_features
    from smelt.cli.doctor import examine_machine

    findings = [asdict(finding) for finding in examine_machine()]
    try:
        config = Config.from_env()
        knobs = {knob.variable: str(getattr(config, knob.field)) for knob in KNOBS}
    except SmeltError as error:
        knobs = {"error": str(error)}
    facts = {"doctor": findings, "knobs": knobs, "cpu": sorted(host_features())}
    return json.dumps(facts, indent=1)


def _compilation(model: Path, limit_s: float) -> dict[str, str]:
    """What `smelt compile --json` says, its log, and how it ended."""
    from smelt.base.config import child_environment

    with tempfile.TemporaryDirectory(prefix="smelt-") as folder:
        command = [sys.executable, "-P", "-m", "smelt", "compile", str(model), "-o", str(Path(folder) / "out")]
        environment = child_environment({"SMELT_LOG": "debug", "SMELT_HOOK": "off", "PYTHONPATH": _import_path()})
        try:
            ran = subprocess.run(
                [*command, "--json", "-vv"], capture_output=True, text=True, errors="replace", timeout=limit_s,
                env=environment, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            ended, said, log = f"exit code {ran.returncode}", ran.stdout, ran.stderr
        except subprocess.TimeoutExpired as late:
            ended, said, log = f"stopped after {limit_s:g} s", _text(late.stdout), _text(late.stderr)
    return {"compile.json": said, "compile.log": f"{log}\n{ended}\n"}


def _import_path() -> str:
    import os

    return os.pathsep.join(entry for entry in sys.path if entry)


def _text(said: Any) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


def _without_home(text: str) -> str:
    return text.replace(str(Path.home()), "~") if Path.home() != Path("/") else text
