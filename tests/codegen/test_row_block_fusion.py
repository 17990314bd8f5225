"""Products that go through the same blocks of rows one after the other: which are joined, and that rows stay right."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from region_check import assert_alike, generated, stock
from tests import host_compiler

import smelt
from smelt.codegen.c.made import panels_after
from smelt.runtime import Executable, SessionSettings

RNG = np.random.default_rng(11)
LAYERS = """(float[b,s,64] x) => (float[b,s,64] y, float[b,s,96] z) {
    p = MatMul(x, w0) q = Add(p, b0) r = Relu(q)
    t = MatMul(r, w1) u = Add(t, b1) v = Add(u, x)
    z = MatMul(v, w2)
    m = MatMul(v, w3) n = Add(m, b3) h = Relu(n) o = MatMul(h, w4) e = Add(o, v)
    y = Tanh(e) }"""
SHAPES = {
    "w0": (64, 64), "b0": (64,), "w1": (64, 64), "b1": (64,), "w2": (64, 96), "w3": (64, 160), "b3": (160,),
    "w4": (160, 64),
}  # fmt: skip
ATTENTION = """(float[b,s,64] x) => (float[b,s,64] y) {
    q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
    cut = Constant<value_ints=[0, 0, 4, 16]>() flat = Constant<value_ints=[0, 0, 64]>()
    q4 = Reshape(q, cut) k4 = Reshape(k, cut) v4 = Reshape(v, cut)
    qt = Transpose<perm=[0,2,1,3]>(q4) kt = Transpose<perm=[0,2,3,1]>(k4) vt = Transpose<perm=[0,2,1,3]>(v4)
    a = MatMul(qt, kt) w = Softmax<axis=-1>(a) c = MatMul(w, vt)
    ct = Transpose<perm=[0,2,1,3]>(c) cf = Reshape(ct, flat)
    o = MatMul(cf, wo) r = Add(o, x)
    l = MatMul(r, w1) g = Relu(l) h = MatMul(g, w2) y = Add(h, r) }"""
SEVEN = """int sched_getaffinity(int thread, unsigned long bytes, void *mask) {
    (void)thread, (void)bytes, *(unsigned long *)mask = 127;
    return 0; }"""
ATTENTION_SHAPES = {"wq": (64, 64), "wk": (64, 64), "wv": (64, 64), "wo": (64, 64), "w1": (64, 128), "w2": (128, 64)}


def model_of(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 21]> g {text}')
    for name, shape in shapes.items():
        array = (np.random.default_rng([3, *shape]).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def steps(model: onnx.ModelProto) -> list[int]:
    """Kernels of each step that may run in order."""
    fused = [code.launches.row_fused for code in generated(model).codes]
    return [count for launches in fused for _, counts in sorted(launches.items()) for count in counts]


@pytest.fixture(scope="module", params=["layers", "attention"])
def opened(request):
    text, shapes = {"layers": (LAYERS, SHAPES), "attention": (ATTENTION, ATTENTION_SHAPES)}[request.param]
    model = model_of(text, shapes)
    with smelt.compile(model, force=True, levels="v3", verify=False) as compiled:
        assert not compiled.result.plan.fallbacks
        folder = compiled.result.artifact.directory
        yield model, [Executable.open(folder, SessionSettings(threads=count)) for count in (1, 2, 4)]


@pytest.mark.parametrize(
    "batch, length",
    [(1, 1), (1, 24), (1, 37), (1, 96), (1, 128), (2, 64), (2, 96), (3, 50), (1, 200), (1, 512), (4, 128), (1, 1000)],
)
def test_rows_are_right_and_no_bit_depends_on_threads(opened, batch, length):
    model, executables = opened
    x = RNG.standard_normal((batch, length, 64)).astype(np.float32)
    wanted = stock(model, [x])
    found = [executable.run({"x": x}) for executable in executables for _ in range(3)]
    assert_alike(found[0], wanted, f"{batch} x {length}", 2e-5, 2e-5)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_block_for_each_of_many_processors(opened, tmp_path):
    """Told of seven processors, tasks are smaller, also after the first launch, which four threads share."""
    _, executables = opened
    x = RNG.standard_normal((1, 256, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "seven.c").write_text(SEVEN)
    library = ("-shared", "-fPIC", "-o", tmp_path / "seven.so", tmp_path / "seven.c")
    subprocess.run([*host_compiler.command(), *library], check=True)
    program = f"""
import numpy as np
from smelt.runtime import Executable, SessionSettings
x = np.load({str(tmp_path / "x.npy")!r})
one = Executable.open({str(executables[0].directory)!r}, SessionSettings(threads=4))
np.savez({str(tmp_path / "y.npz")!r}, *[y for _ in range(5) for y in one.run({{"x": x}})])
"""
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "seven.so")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    wanted, found = executables[0].run({"x": x}), list(np.load(tmp_path / "y.npz").values())
    for place, y in enumerate(found):
        assert np.array_equal(y, wanted[place % len(wanted)])


def test_products_of_the_same_rows_are_joined() -> None:
    assert steps(model_of(LAYERS, SHAPES)) == [1, 2]
    first, *rest = steps(model_of(ATTENTION, ATTENTION_SHAPES))
    assert first == 3 and rest == [2, 1, 1, 1]


def test_products_of_one_step_do_not_take_each_others_memory() -> None:
    """Too many rows for blocks: the products of a step run side by side, and none may write over what another reads."""
    text = """(float[s,64] x) => (float[s,512] y, float[s,512] z, float[s,64] o) {
        a = MatMul(x, w0) p = Relu(a) b = MatMul(x, w1) q = Relu(b)
        c = MatMul(p, w2) r = Relu(c) y = MatMul(p, w6)
        d = MatMul(q, w3) t = Relu(d) z = MatMul(q, w7)
        e = MatMul(r, w4) f = Add(e, r) g = MatMul(t, w5) h = Add(g, t) i = Add(f, h) o = Softmax<axis=0>(i) }"""
    wide = {"w6": (64, 512), "w7": (64, 512)}
    model = model_of(text, {**{f"w{place}": (64, 64) for place in range(6)}, **wide})
    assert steps(model) == [2, 4, 1, 1]
    x = RNG.standard_normal((6000, 64)).astype(np.float32)
    with smelt.compile(model, force=True, levels="v3", verify=False) as compiled:
        folder = compiled.result.artifact.directory
        one, two = (Executable.open(folder, SessionSettings(threads=count)) for count in (1, 2))
        wanted = one.run({"x": x})
        for _ in range(30):
            assert all(np.array_equal(a, b) for a, b in zip(two.run({"x": x}), wanted, strict=True))


def test_products_are_told_which_panels_come_next() -> None:
    """The second product's panels to the first, whatever lies between; nothing to the last one."""
    (code,) = generated(model_of(LAYERS, SHAPES)).codes
    coming = panels_after(code.kernels)
    assert [id(kernel) in coming for kernel in code.kernels] == [True] * (len(code.kernels) - 1) + [False]
    assert [depth.const for _, depth in coming.values()] == [64, 64]
    assert all(code.kernels[place + 1].first_panels == coming[id(code.kernels[place])] for place in range(2))


def test_other_rows_are_waited_for() -> None:
    """The second product reads the row before its own, the third a sum over all rows."""
    shifted = """(float[1,128,64] x) => (float[1,127,64] y) {
        p = MatMul(x, w) q = Relu(p)
        one = Constant<value_ints=[1]>() end = Constant<value_ints=[128]>() zero = Constant<value_ints=[0]>()
        last = Constant<value_ints=[127]>() axis = Constant<value_ints=[1]>()
        a = Slice(q, one, end, axis) b = Slice(q, zero, last, axis)
        m = MatMul(a, w2) y = Add(m, b) }"""
    summed = """(float[1,128,64] x) => (float[1,128,64] y) {
        p = MatMul(x, w) q = Relu(p) axis = Constant<value_ints=[1]>()
        s = ReduceSum<keepdims=1>(q, axis) m = MatMul(q, w2) y = Add(m, s) }"""
    x = RNG.standard_normal((1, 128, 64)).astype(np.float32)
    for text in (shifted, summed):
        model = model_of(text, {"w": (64, 64), "w2": (64, 64)})
        assert steps(model) == []
        with smelt.compile(model, force=True, levels="v3", verify=False, threads=2) as compiled:
            for _ in range(20):
                assert_alike(compiled.run({"x": x}), stock(model, [x]), text, 2e-5, 2e-5)


def test_products_of_large_operands_are_cut_by_columns() -> None:
    text = "(float[s,640] x) => (float[s,640] y) { p = MatMul(x, w) q = Relu(p) y = MatMul(q, w2) }"
    assert steps(model_of(text, {"w": (640, 640), "w2": (640, 640)})) == []


def test_masked_keys_that_are_not_finite_are_noticed() -> None:
    """Operands are looked at while their rows are laid out: NaN in a key reaches all rows, whatever is masked."""
    text = ATTENTION.replace("(float[b,s,64] x)", "(float[b,s,64] x, float[s,s] mask)").replace(
        "a = MatMul(qt, kt) w = Softmax<axis=-1>(a)", "a0 = MatMul(qt, kt) a = Add(a0, mask) w = Softmax<axis=-1>(a)"
    )
    model = model_of(text, ATTENTION_SHAPES)
    mask = np.triu(np.full((128, 128), -3e38, np.float32), 1)
    x = RNG.standard_normal((1, 128, 64)).astype(np.float32)
    broken = x.copy()
    broken[0, 100, 5] = np.nan
    with smelt.compile(model, force=True, levels="v3", verify=False, threads=2) as compiled:
        for given in (x, broken, x):
            found, wanted = compiled.run({"x": given, "mask": mask}), stock(model, [given, mask])
            assert_alike(found, wanted, "masked", 2e-5, 2e-5)
