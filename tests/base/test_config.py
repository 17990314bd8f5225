"""Knobs are read once, from one place, and a bad value is an error."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from smelt.base import KNOBS, Config, ConfigError

SOURCE = Path(__file__).parents[2] / "src" / "smelt" / "base" / "config.py"


def test_defaults_need_no_variable():
    config = Config.from_env({"HOME": "/nowhere"})
    assert config.cc is None and config.verify and not config.force and config.levels == ()


def test_values_are_read():
    config = Config.from_env(
        {
            "SMELT_CACHE_DIR": "/a/b",
            "CC": "gcc",
            "SMELT_CC": "clang -m64",
            "SMELT_LEVELS": "v2, v3,",
            "SMELT_FORCE": "Yes",
            "SMELT_VERIFY": "0",
            "SMELT_COMPILE_TIMEOUT": "1.5",
            "SMELT_JOBS": "3",
            "SMELT_LOG": "Debug",
        }
    )
    assert config.cache_dir == Path("/a/b")
    assert (config.cc, config.cc_from) == ("clang -m64", "SMELT_CC")
    assert config.levels == ("v2", "v3")
    assert config.force and not config.verify
    assert (config.compile_timeout_s, config.jobs, config.log) == (1.5, 3, "debug")


@pytest.mark.parametrize("asked", ["", "/x/cache", "relative/cache"])
@pytest.mark.parametrize("home", ["/home/somebody", "", "relative"])
def test_the_cache_lies_where_platformdirs_says(monkeypatch: pytest.MonkeyPatch, asked: str, home: str):
    import platformdirs

    monkeypatch.setenv("XDG_CACHE_HOME", asked)
    monkeypatch.setenv("HOME", home)
    assert Config.from_env({}).cache_dir == platformdirs.user_cache_path("smelt", appauthor=False)


def test_cc_is_taken_when_smelt_cc_is_empty():
    config = Config.from_env({"CC": "tcc", "SMELT_CC": " "})
    assert (config.cc, config.cc_from) == ("tcc", "CC")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SMELT_FORCE", "maybe"),
        ("SMELT_JOBS", "-1"),
        ("SMELT_JOBS", "two"),
        ("SMELT_THREADS", "²"),
        ("SMELT_COMPILE_TIMEOUT", "0"),
        ("SMELT_COMPILE_TIMEOUT", "nan"),
        ("SMELT_LOG", "loud"),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error_that_names_the_variable(variable: str, value: str):
    with pytest.raises(ConfigError, match=variable):
        Config.from_env({variable: value})


def test_with_keeps_what_is_none():
    config = Config.from_env({"SMELT_THREADS": "4"})
    assert config.with_(threads=None, force=True) == Config.from_env({"SMELT_THREADS": "4", "SMELT_FORCE": "1"})


def test_every_variable_that_is_read_is_a_documented_knob():
    read = set(re.findall(r'"(SMELT_[A-Z_]+)"', SOURCE.read_text(encoding="utf-8")))
    assert read == {knob.variable for knob in KNOBS if knob.variable.startswith("SMELT_")}
    assert {knob.field for knob in KNOBS} <= {field.name for field in fields(Config)}
