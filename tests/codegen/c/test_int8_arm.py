"""8-bit products and layers of AArch64 under emulation against numpy in int64, by NEON alone, dotprod and i8mm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.codegen.c import test_int8, test_int8_layers
from tests.codegen.c.function_probe import EMULATED, built

BUILDS = pytest.mark.parametrize("name", EMULATED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("arm")


@pytest.fixture
def products(name: str, folder: Path) -> Iterator[test_int8.Probe]:
    found = test_int8.Probe(built("int8", EMULATED[name], folder), EMULATED[name].cpu)
    yield found
    found.close()


@pytest.fixture
def layers(name: str, folder: Path) -> Iterator[test_int8_layers.Probe]:
    found = test_int8_layers.Probe(built("int8_layer", EMULATED[name], folder), EMULATED[name].cpu)
    yield found
    found.close()


def check_products(probe: test_int8.Probe, seeds: range) -> None:
    for seed in seeds:
        case = test_int8.random_case(seed)
        np.testing.assert_array_equal(probe.run(case), case.expected(), err_msg=f"seed {seed}")


def check_layers(probe: test_int8_layers.Probe, seeds: range) -> None:
    for seed in seeds:
        test_int8_layers.check_sums(probe, test_int8_layers.random_case(seed), f"seed {seed}")


@BUILDS
def test_products_are_those_of_int64(products: test_int8.Probe) -> None:
    check_products(products, range(60))
    products.use_features(False)
    check_products(products, range(60, 80))


@BUILDS
def test_layers_are_those_of_int64(layers: test_int8_layers.Probe) -> None:
    check_layers(layers, range(40))


@pytest.mark.full
@pytest.mark.timeout(900)
@BUILDS
def test_many_products_are_those_of_int64(products: test_int8.Probe) -> None:
    check_products(products, range(100_000, 105_000))


@pytest.mark.full
@pytest.mark.timeout(900)
@BUILDS
def test_many_layers_are_those_of_int64(layers: test_int8_layers.Probe) -> None:
    check_layers(layers, range(100_000, 105_000))


@BUILDS
def test_extremes_do_not_saturate(products: test_int8.Probe) -> None:
    """Rows of every tile, an odd number of groups, and weights that only spare groups hold as small pairs."""
    for rows in range(1, 8):
        for left, right in test_int8.TYPES:
            for x in (np.iinfo(left).min, np.iinfo(left).max):
                for y in (np.iinfo(right).min, np.iinfo(right).max):
                    a, b = np.full((rows, 132), x, left), np.full((132, 33), y, right)
                    b[8:, 5] = 1
                    case = test_int8.Case(a, b, np.array([x // 2], left), np.array([y // 2], right))
                    np.testing.assert_array_equal(products.run(case), case.expected())


@BUILDS
def test_all_levels_quantize_alike(layers: test_int8_layers.Probe, tmp_path: Path) -> None:
    """The same bytes as on this machine, ties included."""
    here = next(build for build in test_int8_layers.BUILDS.values() if test_int8_layers.runs_here(build))
    native = test_int8_layers.Probe(built("int8_layer", here, tmp_path))
    for seed in range(15):
        for result in ("u8", "i8"):
            case = test_int8_layers.scaled_case(seed, result)
            assert layers.run(case).tobytes() == native.run(case).tobytes(), f"seed {seed}"
