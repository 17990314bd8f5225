"""The demonstration goes on where pretrained models cannot be had."""

from __future__ import annotations

import pytest

from smelt.base import Config
from smelt.bench import demo
from smelt.bench.real.wheels import WHEELS, FetchError


def test_without_a_network_pretrained_models_are_left_out_with_a_note(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def offline(*_: object) -> None:
        raise FetchError("no network")

    monkeypatch.setattr(demo, "pretrained", offline)
    assert demo._pretrained(config) == []  # pyright: ignore[reportPrivateUsage]
    assert "no network" in capsys.readouterr().out


def test_the_models_that_are_shown_come_from_pinned_wheels():
    packages = {wheel.package.lower() for wheel in WHEELS}
    names: tuple[str, ...] = demo._PRETRAINED  # pyright: ignore[reportPrivateUsage]
    assert {name.partition("/")[0] for name in names} <= packages
