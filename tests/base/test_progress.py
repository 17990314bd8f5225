"""Progress is drawn for people only."""

from __future__ import annotations

import pytest

from smelt.base import Config, Silent, open_progress


def test_nothing_is_written_without_a_terminal(capfd: pytest.CaptureFixture[str]):
    with open_progress(Config.from_env({})) as progress:
        progress.task("compile", 2)("k0")
    assert capfd.readouterr() == ("", "")


def test_quiet_is_silent_on_a_terminal_too(capfd: pytest.CaptureFixture[str]):
    with open_progress(Config.from_env({"SMELT_LOG": "quiet"}), terminal=True) as progress:
        assert isinstance(progress, Silent)
    assert capfd.readouterr() == ("", "")


def test_bars_go_to_stderr_and_take_any_text_literally(capfd: pytest.CaptureFixture[str]):
    with open_progress(Config.from_env({}), terminal=True) as progress:
        step = progress.task("compile [bold]x", 2)
        step("k0 [red]v2")
        step("k0 v3")
    out, err = capfd.readouterr()
    assert out == ""
    assert "compile [bold]x" in err and "2/2" in err
