"""Window kernels that differ in numbers alone share a body; all others are as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from region_check import Graph, check, floats, generated

from smelt.codegen.c.shared_bodies import share_bodies

HEAD = "void SMELT_NAME({})(void *p, int64_t task) {{\n"
WINDOW = "  const smelt_window w = {{1, 8, 8}, SMELT_PANELS};\n"


def kernel(name: str, body: str, window: str = WINDOW) -> dict[str, str]:
    return {name: f"{HEAD.format(name)}{window}{body}}}\n"}


def test_numbers_that_differ_are_arguments_and_equal_ones_stay():
    texts = kernel("k_a", "  f(32, 7, bc_f32(-0x1.8p+1f), 32);\n")
    texts |= kernel("k_b", "  f(48, 7, bc_f32(0x1.0p+0f), 48);\n")
    shared = share_bodies(texts, texts)
    assert len(shared) == 1 and shared[0].kernels == ("k_a", "k_b")
    text = shared[0].text
    assert "f(integer0, 7, bc_f32(float0), integer0);" in text
    assert "integer_[] = {32};" in text and "float_[] = {0x1.0p+0f};" in text
    assert all(HEAD.format(name) in text for name in ("k_a", "k_b"))


def test_other_forms_sizes_of_arrays_and_kernels_of_no_window_stay_apart():
    for one, other in (("f(1);", "f(1); f(2);"), ("float a[4];", "float a[5];"), ("g(INT64_C(1));", "g(INT64_C(2));")):
        kernels = kernel("k_a", one) | kernel("k_b", other)
        assert [body.text for body in share_bodies(kernels, kernels)] == list(kernels.values())
    plain = kernel("k_a", "f(1);", "") | kernel("k_b", "f(2);", "")
    assert [body.text for body in share_bodies(plain, ())] == list(plain.values())


def layers() -> ModelProto:
    """Convolutions of several sizes with one epilogue, which takes no part in their registers."""
    widths = [8, 24, 40, 16]
    nodes: list[Any] = []
    arrays: list[Any] = []
    value = "x"
    for place, (before, after) in enumerate(zip([3, *widths], widths, strict=False)):
        kernel_size = (1, 3)[place % 2]
        weights = floats(after, before, kernel_size, kernel_size, seed=place) / np.float32(before)
        arrays += [numpy_helper.from_array(weights, f"w{place}")]
        arrays += [numpy_helper.from_array(np.array(0.5 + place / 7, np.float32), f"a{place}")]
        nodes.append(helper.make_node("Conv", [value, f"w{place}"], [f"c{place}"], pads=[kernel_size // 2] * 4))
        nodes.append(helper.make_node("Mul", [f"c{place}", f"a{place}"], [f"m{place}"]))
        nodes.append(helper.make_node("HardSwish", [f"m{place}"], [f"y{place}"]))
        value = f"y{place}"
    border = {"x": ["n", 3, "h", "w"], value: ["n", 16, "h", "w"]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in border.items())
    graph = helper.make_graph(nodes, "g", [x], [y], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def test_layers_of_several_sizes_share_a_body_and_are_right():
    model = layers()
    kernels = {kernel.name: kernel for code in generated(model).codes for kernel in code.kernels}
    windows = {name for name, kernel in kernels.items() if kernel.window is not None}
    bodies = share_bodies({name: kernel.text for name, kernel in kernels.items()}, windows)
    assert max(len(body.kernels) for body in bodies) >= 2
    check(Graph("", [floats(2, 3, 11, 13)], models=[model]), levels="v3")
