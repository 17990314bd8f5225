"""CPU features and builds: flags with a partial order, the same in Python and C, and never more than a CPU has."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from tests import host_compiler

import smelt
from smelt.base import BUILDS, TARGETS, ConfigError, find_target, host_build, select_targets
from smelt.base import target as target_module
from smelt.base.features import FEATURES, features_of, find_feature, flags_of, with_needed
from smelt.base.machine import Machine

INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"
X86 = [feature for feature in FEATURES if feature.arch == "x86-64"]
# Which machines have what: the lists of their makers.
MACHINES = {
    "Nehalem": ("sse4", "v2"),
    "Haswell": ("avx2", "v3"),
    "Alder Lake": ("avx2 avxvnni", "avxvnni"),
    "Skylake-SP": ("avx512", "v4"),
    "Cascade Lake": ("avx512 avx512vnni", "v4"),
    "Zen 4": ("avx512 avx512vnni avx512bf16", "avx512vnni"),
    "Zen 5": ("avx512 avx512vnni avx512bf16 avxvnni", "avx512vnni"),
    "Sapphire Rapids": ("amx avxvnni", "amx"),
}
PROBE = """
#include <smelt/base/cpu.h>
#include <stdio.h>
#include <stdlib.h>
#define SMELT_BUILD(name, level, features)
#define SMELT_FEATURE(name, with, ...) #name,
static const char *const names[] = {
#include <smelt/base/feature_list.h>
};
/* The bits that tell some features; features by number are arguments. */
int main(int argc, char **argv) {
  smelt_cpu_words words = {0};
  for (int i = 1; i < argc; i++)
    for (size_t w = 0; w < sizeof words / 8; w++)
      ((uint64_t *)&words)[w] |= ((const uint64_t *)&smelt_feature_list[atoi(argv[i])].need)[w];
  if (argc == 1) words = smelt_cpu_read();
  const uint32_t found = smelt_features_of(&words);
  const smelt_build *best = smelt_best_build(found, ~0u);
  printf("{\\"features\\": [");
  for (int i = 0; i < SMELT_FEATURES; i++)
    printf("%s[\\"%s\\", %u, %d]", i ? ", " : "", names[i], smelt_with_others(1u << i), found >> i & 1);
  printf("], \\"builds\\": [");
  for (int i = 0; i < SMELT_BUILDS; i++)
    printf("%s[\\"%s\\", %d, %u]", i ? ", " : "", smelt_builds[i].name, smelt_builds[i].level,
           smelt_with_others(smelt_builds[i].features));
  printf("], \\"best\\": \\"%s\\"}\\n", best ? best->name : "");
  return 0;
}
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    (folder / "probe.c").write_text(PROBE)
    command = [*host_compiler.command(), "-w", f"-I{INCLUDE}", str(folder / "probe.c"), "-o", str(folder / "probe")]
    subprocess.run(command, check=True)
    return folder / "probe"


def ask(probe: Path, *numbers: int) -> dict:
    return json.loads(subprocess.run([probe, *map(str, numbers)], capture_output=True, check=True).stdout)


@pytest.fixture
def on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module.platform, "machine", lambda: "x86_64")


@pytest.mark.skipif(target_module.host_arch() != "x86-64", reason="the list of this architecture")
def test_python_and_c_have_the_same_features_and_builds(probe: Path) -> None:
    told = ask(probe)
    place = {name: number for number, (name, _, _) in enumerate(told["features"])}
    assert list(place) == [feature.name for feature in X86]
    for name, mask, _ in told["features"]:
        assert mask == sum(1 << place[other] for other in with_needed(name)), name
    here = [build for build in BUILDS if build.target.arch == "x86-64"]
    expected = [
        [b.name, b.target.index if b.name == b.target.name else -1, sum(1 << place[f] for f in b.features)]
        for b in here
    ]
    assert told["builds"] == expected


@pytest.mark.skipif(target_module.host_arch() != "x86-64", reason="the list of this architecture")
def test_c_finds_what_the_operating_system_tells(probe: Path) -> None:
    """But for tiles, which a process must ask for."""
    found = {name for name, _, there in ask(probe)["features"] if there}
    assert found - {"amx"} == features_of(target_module.host_features()) - {"amx"}


@pytest.mark.skipif(target_module.host_arch() != "x86-64", reason="the list of this architecture")
def test_no_set_of_flags_chooses_a_build_with_more(probe: Path) -> None:
    """Any bits may be there without others, as virtual machines have it: what goes with them is asked for, too."""
    for some in itertools.chain(*(itertools.combinations(range(len(X86)), count) for count in (1, 2, 5, 6))):
        told = ask(probe, *some)
        found = {name for name, _, there in told["features"] if there}
        assert found == features_of(flags_of(X86[number].name for number in some))
        assert not told["best"] or find_target(told["best"]).features <= found


@pytest.mark.parametrize("machine", MACHINES)
def test_the_best_build_that_a_machine_has_all_features_of(on_x86: None, machine: str) -> None:
    features, expected = MACHINES[machine]
    flags = flags_of(with_needed(*features.split()))
    best = host_build(flags)
    assert best is not None and best.name == expected and best.flags <= flags


def test_a_build_extends_the_target_that_holds_it() -> None:
    for build in BUILDS:
        assert build.target.features <= build.features and build.flags >= build.target.flags
    assert {build.target for build in BUILDS} == set(TARGETS)


def test_a_build_without_regions_stands_for_its_target(on_x86: None) -> None:
    assert [t.name for t in select_targets(None, ["avx512vnni"])] == ["v2", "v4"]
    assert host_build(flags_of(with_needed("amx")), find_target("v3")) == BUILDS[1]


def test_an_unknown_feature_or_build_lists_the_known_ones() -> None:
    for unknown in (
        lambda: find_feature("avx9"),
        lambda: Machine(features=frozenset({"avx9"})),
        lambda: find_target("avx9"),
    ):
        with pytest.raises(ConfigError, match=r"avx9.*avx512vnni.*i8mm"):
            unknown()
