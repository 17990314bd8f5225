"""Random networks over images, with nothing verified: at every size what stock ONNX Runtime gives.

Networks share libraries, so that a test costs few compilations. Code is compiled with -O1, which is quicker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from merged import feeds_of, merge, split
from random_networks import Network
from region_check import stock

import smelt

BOUND = 1e-3  # of |value| + the output's root mean square: faults of code generation are far beyond it
TOGETHER = 20
HUGE = 1e30


def mistakes(seeds: Sequence[int], levels: str) -> list[str]:
    """What differs from stock, with the network that it happened in."""
    networks = [network for network in map(Network, seeds) if network.nodes]
    models, inputs = [n.model() for n in networks], [n.inputs() for n in networks]
    found: list[str] = []
    with smelt.compile(merge(models), force=True, levels=levels, verify=False, threads=1) as compiled:
        for call in range(max(map(len, inputs))):
            fed = [given[call % len(given)] for given in inputs]
            results = split(models, compiled.run(feeds_of(models, [[x] for x in fed])))
            for network, model, x, got in zip(networks, models, fed, results, strict=True):
                wrong = {name for name, a, b in zip(names(model), got, stock(model, [x]), strict=True) if differs(a, b)}
                wrong -= behind_overflow(model, x) if wrong else set()
                found += [f"{sorted(wrong)} at {x.shape}:\n{network.text()}"] if wrong else []
    return found


def behind_overflow(model: onnx.ModelProto, x: np.ndarray) -> set[str]:
    """Values computed from others beyond `HUGE`, such as the maximum of padding alone, which is the least finite
    number: whether a sum of such is finite, infinite or NaN depends on the order of its terms."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    made = [name for node in model.graph.node for name in node.output if name]
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    values = dict(zip(made, stock(every, [x]), strict=True))
    huge = {n for n, v in values.items() if v.dtype.kind == "f" and not (np.abs(v) < HUGE).all()}
    behind = set[str]()
    for node in model.graph.node:
        behind |= set(node.output) if (huge | behind) & set(node.input) else set()
    return behind


def names(model) -> list[str]:
    return [value.name for value in model.graph.output]


def differs(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.shape != theirs.shape:
        return True
    finite = theirs[np.isfinite(theirs)]
    size = np.sqrt(np.mean(np.square(finite, dtype=np.float64))) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        close = np.abs(ours.astype(np.float64) - theirs) <= BOUND * (np.abs(theirs) + size + 1e-6)
    return not (close | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))).all()


# Two values of one name in a C function, and a transposed convolution that read beyond its taps.
WERE_WRONG = (36, 55, 126)
# Pools that see padding alone. Stock's result has NaN in the first; in the last one a sum overflows by its order.
OF_PADDING = (500_171, 500_371, 400_371)


@pytest.fixture(autouse=True)
def quick_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMELT_CFLAGS", "-O1")


def test_networks_that_were_wrong() -> None:
    assert not mistakes(WERE_WRONG, "v2")


def test_pools_of_padding_alone() -> None:
    assert not mistakes(OF_PADDING, "v2")
    network = Network(OF_PADDING[-1])
    (first, *_) = network.inputs()
    behind = behind_overflow(network.model(), first)
    assert "v0" not in behind and "v1" not in behind and {"v2", "v39"} <= behind


def test_random_networks_give_what_stock_gives() -> None:
    assert not mistakes(range(10_000, 10_000 + TOGETHER), "v2")


@pytest.mark.full
@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
@pytest.mark.parametrize("part", range(35))
def test_many_random_networks_give_what_stock_gives(part: int, levels: str) -> None:
    first = 100_000 * (1 + int(levels[1])) + part * TOGETHER
    assert not mistakes(range(first, first + TOGETHER), levels)


def test_the_comparison_can_fail() -> None:
    right = np.ones((2, 3), np.float32)
    assert not differs(right, right + np.float32(1e-6))
    assert differs(right + np.float32(1e-2), right) and differs(right[:1], right)
    odd = np.array([[np.nan, np.inf, 1], [2, 3, -np.inf]], np.float32)
    assert differs(np.full_like(right, np.nan), right) and differs(right, odd) and not differs(odd, odd)
    assert differs(np.where(odd == 3, np.float32(3.1), odd), odd) and differs(-odd, odd)
