"""Progress is drawn for people only."""

from __future__ import annotations

import logging
import sys
import time

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


def test_a_notebook_has_one_line_that_is_written_over(capfd: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with open_progress(Config.from_env({}), "net") as progress:
        step = progress.task("compile kernels", 2)
        assert "net: compile kernels 0 of 2, 0 s" in capfd.readouterr().err
        time.sleep(0.25)
        step("k0")
        assert capfd.readouterr().err.startswith("\rnet: compile kernels 1 of 2 (k0)")
    assert capfd.readouterr().err.endswith("\r")


def test_a_service_gets_a_line_of_log_now_and_then(caplog: pytest.LogCaptureFixture, monkeypatch):
    monkeypatch.setattr("smelt.base.progress._EVERY_S", 0.0)
    with caplog.at_level(logging.INFO, logger="smelt"), open_progress(Config.from_env({}), "net") as progress:
        progress.task("verify", 3)("region 1")
    assert [(r.name, r.getMessage()) for r in caplog.records] == [
        ("smelt.progress", "net: verify 1 of 3 (region 1), 0 s")
    ]


def test_what_is_opened_inside_another_display_is_the_same():
    with open_progress(Config.from_env({}), "outer") as outer, open_progress(Config.from_env({}), "inner") as inner:
        assert inner is outer
