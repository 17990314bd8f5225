"""Windows of windows run by spatial or channel tiles: right at every border and stride; nothing else is joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from region_check import Graph, check, floats

import smelt

Conv = tuple[tuple[int, ...], dict[str, Any]]

# Images of more than 1 MB between the layers, whose lines do not divide evenly into tiles.
CHAINS: list[tuple[tuple[int, ...], list[Conv]]] = [
    ((8, 59, 58), [((80, 8, 1, 1), {}), ((80, 1, 3, 3), {"group": 80, "pads": [1] * 4}), ((8, 80, 1, 1), {})]),
    (
        (16, 61, 60),
        [
            ((75, 16, 1, 1), {}),
            ((75, 1, 3, 3), {"group": 75, "pads": [0, 0, 1, 1], "strides": [2, 2]}),
            ((24, 75, 1, 1), {}),
        ],
    ),
    (
        (8, 64, 70),
        [
            ((64, 8, 1, 1), {}),
            ((64, 1, 7, 5), {"group": 64, "pads": [6, 4, 6, 4], "dilations": [2, 2]}),
            ((8, 64, 1, 1), {}),
        ],
    ),
    (
        (3, 140, 150),
        [
            ((64, 3, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
            ((64, 1, 5, 5), {"group": 64, "pads": [2] * 4, "strides": [3, 2]}),
        ],
    ),
]


def chain(image: tuple[int, ...], layers: list[Conv], *, seen_twice: bool = False) -> ModelProto:
    """Convolutions with activations between them; with a residual where the last one's result looks like the image."""
    nodes, inits, value = [], [], "x"
    for place, (shape, attrs) in enumerate(layers):
        w = floats(*shape, seed=place) / np.float32(np.sqrt(np.prod(shape[1:])))
        inits += [
            numpy_helper.from_array(w, f"w{place}"),
            numpy_helper.from_array(floats(shape[0], seed=9), f"b{place}"),
        ]
        nodes.append(helper.make_node("Conv", [value, f"w{place}", f"b{place}"], [f"c{place}"], **attrs))
        nodes.append(helper.make_node("HardSwish", [f"c{place}"], [f"a{place}"]))
        value = f"a{place}"
    outputs = [value, *(["a0"] if seen_twice else [])]
    if layers[-1][0][0] == image[0]:
        nodes.append(helper.make_node("Add", [value, "x"], ["y"]))
        outputs[0] = "y"
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *image])]
    out = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, out, inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def launches(model: ModelProto) -> list[int]:
    """Window kernels in each launch."""
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=1) as compiled:
        (entry,) = compiled.result.generated.source.entries
    places = [k.launch for k in entry.kernels if k.kind == "window"]
    return [places.count(place) for place in sorted(set(places))]


@pytest.mark.parametrize("levels", ["v2", "v3"])
def test_chains_are_right_at_every_border(levels: str) -> None:
    graphs = [
        Graph(f"{image} {layers}", [floats(2, *image)], models=[chain(image, layers)]) for image, layers in CHAINS
    ]
    check(*graphs, levels=levels, rtol=2e-5, atol=2e-5)


def test_a_chain_is_one_launch() -> None:
    assert launches(chain(*CHAINS[0])) == [3]


def test_what_is_needed_elsewhere_is_not_kept_inside() -> None:
    assert launches(chain(*CHAINS[0], seen_twice=True)) == [1, 1, 1]


def test_small_images_are_not_cut_into_tiles() -> None:
    (_, layers) = CHAINS[0]
    assert launches(chain((8, 20, 20), layers)) == [1, 1, 1]


# Many channels over small images, in channel tiles that are not all alike; what follows needs all channels.
CHANNEL_TILES: list[tuple[tuple[int, ...], list[Conv]]] = [
    ((8, 13, 14), [((392, 8, 1, 1), {}), ((392, 1, 3, 3), {"group": 392, "pads": [1] * 4}), ((8, 392, 1, 1), {})]),
    (
        (16, 7, 9),
        [
            ((600, 16, 1, 1), {}),
            ((600, 1, 5, 5), {"group": 600, "pads": [2] * 4, "strides": [2, 2]}),
            ((24, 600, 1, 1), {}),
        ],
    ),
    ((8, 6, 6), [((1000, 8, 1, 1), {}), ((1000, 1, 6, 6), {"group": 1000})]),
]


@pytest.mark.parametrize("levels", ["v2", "v3", "v4"])
def test_channel_tiles_are_right(levels: str) -> None:
    graphs = [
        Graph(f"{image} {layers}", [floats(3, *image)], models=[chain(image, layers)])
        for image, layers in CHANNEL_TILES
    ]
    check(*graphs, levels=levels, rtol=2e-5, atol=2e-5)


def test_small_images_of_many_channels_run_by_channel_tiles() -> None:
    assert launches(chain(*CHANNEL_TILES[0])) == [2, 1]
    assert launches(chain(*CHANNEL_TILES[0], seen_twice=True)) == [1, 1, 1]


def test_a_first_layer_and_its_pool_are_right_and_one_launch() -> None:
    model = chain((3, 143, 150), [((64, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]})])
    model.graph.node.append(
        helper.make_node("MaxPool", ["a0"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    )
    model.graph.output[0].name = "p"
    check(Graph("pool", [floats(2, 3, 143, 150)], models=[model]), rtol=2e-5, atol=2e-5)
    assert launches(model) == [2]


@pytest.mark.parametrize("case", [CHAINS[1], CHANNEL_TILES[1]], ids=["spatial", "channel"])
def test_bits_do_not_depend_on_threads(case: tuple[tuple[int, ...], list[Conv]]) -> None:
    model, x = chain(*case), floats(3, *case[0])
    found = []
    for threads in (1, 3):
        with smelt.compile(model, force=True, levels="v3", verify=False, threads=threads) as compiled:
            found.append(compiled.run({"x": x})[0])
    np.testing.assert_array_equal(found[0], found[1])


def beside(layers: list[Conv], image: tuple[int, ...], *, after: int) -> ModelProto:
    """A chain with a shortcut: another convolution runs beside layer number `after`, and is added to the result."""
    model = chain(image, layers)
    value, channels = ("x", image[0]) if after == 0 else (f"a{after - 1}", layers[after - 1][0][0])
    shape = (layers[-1][0][0], channels, 3, 3)
    model.graph.initializer.append(numpy_helper.from_array(floats(*shape, seed=5) / channels, "ws"))
    model.graph.node.insert(2 * after, helper.make_node("Conv", [value, "ws"], ["s"], pads=[1] * 4))
    model.graph.node.append(helper.make_node("Add", [model.graph.output[0].name, "s"], ["z"]))
    model.graph.output[0].name = "z"
    return model


# The kernels of one group, before, within and behind a pair that is joined.
FORKED = [
    ((8, 59, 58), [((8, 8, 3, 3), {"pads": [1] * 4}), *CHAINS[0][1]], 0),
    ((8, 59, 58), [((8, 8, 3, 3), {"pads": [1] * 4}), *CHAINS[0][1]], 1),
    ((8, 59, 58), [*CHAINS[0][1], ((8, 8, 3, 3), {"pads": [1] * 4})], 2),
    ((8, 59, 58), [*CHAINS[0][1], ((8, 8, 3, 3), {"pads": [1] * 4})], 3),
]


def test_kernels_beside_a_chain_are_not_taken_for_a_part_of_it() -> None:
    graphs = [Graph(f"{after}", [floats(2, *image)], models=[beside(layers, image, after=after)])
              for image, layers, after in FORKED]  # fmt: skip
    for graph in graphs:
        check(graph, rtol=2e-5, atol=2e-5)


def test_a_group_of_several_before_a_chain_leaves_the_chain_as_it_is() -> None:
    (image, layers, _) = FORKED[0]
    assert launches(beside(layers, image, after=0)) == [2, 3]
