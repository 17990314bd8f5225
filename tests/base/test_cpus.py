"""A container's quota counts as well as affinity."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smelt.base.cpus import Cpus, find_cpus


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "3 1\n", "sys/fs/cgroup/a/b/cpu.max": "9 1\n"},
            3,
        ),
        ({"proc/self/cgroup": "0::/gone\n", "sys/fs/cgroup/cpu.max": "4 1\n"}, 4),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "5:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, 64),
        ({}, 64),
    ],
)
def test_the_smallest_limit_counts(many: None, tmp_path: Path, files: dict[str, str], count: int):
    found = find_cpus(tree(tmp_path, files))
    assert found.count == count and found.limited == (count < 64)


def test_affinity_is_the_other_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 7})
    found = find_cpus(tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000"}))
    assert (found.count, found.limited, found.why) == (2, False, "2 of 64 CPUs by affinity")


def test_it_says_why():
    assert Cpus(2, 64, 64, 2.5).why == "the cgroup's quota is 2.5 of 64 CPUs"
    assert Cpus(64, 64, 64, None).why == "all CPUs"
