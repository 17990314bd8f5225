"""CPU levels: order, baseline, host detection."""

from __future__ import annotations

from itertools import pairwise

import pytest

from smelt.base import TARGETS, ConfigError, find_target, host_level, levels_of, runs_on_host, select_targets
from smelt.base import target as target_module


def names(targets: tuple[target_module.Target, ...]) -> list[str]:
    return [target.name for target in targets]


@pytest.fixture
def on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module.platform, "machine", lambda: "x86_64")


def test_all_levels_of_the_host_by_default(on_x86: None):
    assert names(select_targets()) == ["v2", "v3", "v4"]


def test_named_levels_come_in_order_and_with_the_baseline():
    assert names(select_targets("x86-64", ["v4", "x86-64-v3"])) == ["v2", "v3", "v4"]
    assert names(select_targets(None, ["v3"])) == ["v2", "v3"]


@pytest.mark.parametrize("spelled", ["aarch64", "arm64", "AARCH64"])
def test_an_architecture_may_be_spelled_as_others_do(spelled: str):
    assert names(select_targets(spelled)) == ["armv8", "armv82"]


def test_levels_of_two_architectures_are_refused():
    with pytest.raises(ConfigError, match="x86-64"):
        select_targets("aarch64", ["v3"])


@pytest.mark.parametrize("name", ["v5", "", "sparc"])
def test_unknown_names_are_refused_with_the_known_ones(name: str):
    with pytest.raises(ConfigError, match="armv82"):
        find_target(name)
    with pytest.raises(ConfigError, match="armv82"):
        levels_of(name)


def test_indices_count_from_the_baseline():
    for arch in ("x86-64", "aarch64"):
        assert [target.index for target in levels_of(arch)] == list(range(len(levels_of(arch))))


def test_a_level_holds_the_features_of_the_level_below():
    for arch in ("x86-64", "aarch64"):
        levels = levels_of(arch)
        for low, high in pairwise(levels):
            assert set(low.features) < set(high.features)


def test_host_level_is_the_highest_whose_features_are_all_present(on_x86: None):
    v3 = frozenset(find_target("v3").flags)
    assert host_level(v3) == find_target("v3")
    assert host_level(v3 - {"fma"}) == find_target("v2")
    assert host_level(v3 | {"avx512f"}) == find_target("v3")
    assert host_level(frozenset({"sse2"})) is None


def test_only_the_baseline_runs_where_features_are_unknown(on_x86: None):
    assert [target.name for target in TARGETS if runs_on_host(target, frozenset())] == ["v2"]


def test_no_level_runs_on_another_architecture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target_module.platform, "machine", lambda: "riscv64")
    assert host_level(frozenset(find_target("v4").flags)) is None
    with pytest.raises(ConfigError, match="riscv64"):
        select_targets()
