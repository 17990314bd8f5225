from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from smelt.cli.app import VERBS, make_app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "jinja2", "rich", "torch")
OWN = [verb for verb in VERBS if verb != "bench"]


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom smelt.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )
    assert "Exit codes:" in ran.stdout
    assert ran.stdout.strip().endswith("[]"), ran.stdout[-200:] + ran.stderr


def test_help_names_every_verb(call):
    ran = call("--help")
    assert ran.code == 0
    assert all(verb.replace("_", "-") in ran.out for verb in OWN)


def test_without_a_verb_help_is_shown(call):
    assert "compile" in (ran := call()).out + ran.err
    assert ran.code in {0, 2}


def test_the_version_is_printed(call):
    from smelt import __version__

    assert call("--version").out == f"smelt {__version__}\n"


def test_an_unknown_verb_or_option_is_wrong_usage(call):
    assert call("smelter").code == 2
    assert call("inspect", "--no-such-option", "x").code == 2


@pytest.mark.parametrize("verb", OWN)
def test_every_verb_has_help(verb: str, call):
    ran = call(verb.replace("_", "-"), "--help")
    assert ran.code == 0
    assert len(ran.out) > 100


def test_every_verb_and_option_is_documented():
    for verb in OWN:
        assert f"`smelt {verb.replace('_', '-')}" in PAGE, verb
        source = inspect.getsource(import_module(f"smelt.cli.{verb}"))
        own = set(re.findall(r'"(--[a-z-]+)"', source))
        assert [name for name in own if name not in PAGE] == [], verb


def test_verbs_import_only_typer_and_the_command_line_itself_at_their_top():
    for verb in OWN:
        spec = find_spec(f"smelt.cli.{verb}")
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("smelt"):
                assert (node.module or "").startswith("smelt.cli"), verb


def test_a_verb_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("smelt.cli.app.VERBS", ("inspect", "no_such_verb"))
    assert len(make_app().registered_commands) == 1
