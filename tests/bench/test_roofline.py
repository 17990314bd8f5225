"""The measured limits are plausible: no compiler dropped or merged the work."""

from __future__ import annotations

from smelt.base import Config
from smelt.base.target import host_level
from smelt.bench.roofline import measure_limits


def test_limits_lie_between_what_any_machine_does_and_what_none_can(config: Config):
    limits = measure_limits(1, config)
    level = host_level()
    assert level is not None
    lanes = level.vector_bytes // 4
    # Two multiply-adds a cycle at 6 GHz is beyond every CPU; a tenth of one at 1 GHz is below a busy one.
    assert 0.1 * 2 * lanes * 1e9 < limits.fma < 2 * 2 * lanes * 6e9
    assert 1e8 < limits.copy < 1e12
    assert 1e8 < limits.read < 1e12
    assert 1e8 < limits.cached_copy < 1e13
    assert "GFLOP/s" in str(limits)


def test_the_limit_of_bytes_is_that_of_an_instruction(config: Config):
    limits, level = measure_limits(1, config), host_level()
    assert level is not None
    # Two instructions a cycle at 6 GHz, each of as many products and sums as a vector has bytes.
    assert limits.dots < 4 * max(level.vector_bytes, 32) * 6e9
    assert bool(limits.dots) == (level.vector_bytes >= 32)
    assert not limits.dots or "GOP/s" in str(limits)
