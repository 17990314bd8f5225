"""An exception, a crash or a hang in any stage costs what it belongs to; the artifact is right, the report says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import smelt.pipeline
from smelt.base.config import Config
from smelt.base.errors import CompileError, PassError
from smelt.codegen.c import backend as c_backend
from smelt.ops import lookup
from smelt.pipeline import Options, Result, compile_to
from smelt.report import Picture, as_dict, format_html, format_report, report_of
from smelt.runtime import Executable

OPTIONS = Options(levels=("v2",), force=True)
COUNT = 14
BAD = 7


class BoomError(Exception):
    pass


def boom(*_: object, **__: object) -> None:
    raise BoomError("planted")


def chain() -> onnx.ModelProto:
    """A chain of differences with one Tanh in it."""
    kinds = {0: "Sigmoid", BAD: "Tanh"}
    nodes = [
        helper.make_node(kinds.get(i, "Sub"), ["v0"] * (i not in kinds) + [f"v{i}"], [f"v{i + 1}"], name=f"n{i}")
        for i in range(COUNT)
    ]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["rows", 8])
    y = helper.make_tensor_value_info(f"v{COUNT}", TensorProto.FLOAT, ["rows", 8])
    graph = helper.make_graph(nodes, "chain", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def lenient(config: Config) -> Config:
    return config.with_(strict=False)


def checked(model: onnx.ModelProto, folder: Path, config: Config, options: Options = OPTIONS) -> Result:
    """Compiled, right, and each form of the report names the same faults."""
    result = compile_to(model, folder / "out", options, config, title="chain.onnx")
    right(result, model)
    report = report_of(result, "chain.onnx", Picture())
    for fault in result.faults:
        for text in (format_report(report), format_html(report), json.dumps(as_dict(report))):
            assert fault.stage in text and fault.error.split(":")[0] in text
        assert fault.repro.startswith("SMELT_STRICT=1 smelt compile chain.onnx")
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert [fault["stage"] for fault in manifest["faults"]] == [fault.stage for fault in result.faults]
    return result


def right(result: Result, model: onnx.ModelProto) -> None:
    import onnxruntime as ort

    feed = {model.graph.input[0].name: np.random.default_rng(1).standard_normal((3, 8), np.float32)}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for made, wanted in zip(Executable.open(result.artifact).run(feed), session.run(None, feed), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def left(result: Result) -> set[str]:
    return {item.node.name or "" for item in result.plan.fallbacks}


# a stage of smelt raises


def test_a_rule_of_an_op_costs_its_node(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "lowering", boom)
    result = checked(chain(), tmp_path, lenient)
    assert left(result) == {f"n{BAD}"}
    (fault,) = result.faults
    assert (fault.stage, fault.nodes, fault.error) == ("analyze", (f"n{BAD}",), "BoomError: planted")
    assert f"--select n{BAD}" in fault.repro and "registry.py" in fault.where


def test_a_pass_costs_itself(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.passes.common_subexpressions import CommonSubexpressions

    monkeypatch.setattr(CommonSubexpressions, "__call__", boom)
    result = checked(chain(), tmp_path, lenient)
    assert not left(result)
    (fault,) = result.faults
    assert fault.stage == "passes (common-subexpressions)" and fault.error == "BoomError: planted"


def test_capture_costs_the_kernels(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smelt.pipeline, "capture", boom)
    result = checked(chain(), tmp_path, lenient)
    assert not result.plan.regions and [fault.stage for fault in result.faults] == ["capture"]


def test_a_claim_costs_its_node(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = c_backend.CBackend.claims
    monkeypatch.setattr(
        c_backend.CBackend, "claims", lambda self, n: boom() if n.op_type == "Tanh" else claims(self, n)
    )
    result = checked(chain(), tmp_path, lenient)
    assert left(result) == {f"n{BAD}"}
    (fault,) = result.faults
    assert (fault.stage, fault.nodes) == ("capture", (f"n{BAD}",)) and f"--select n{BAD}" in fault.repro


def test_weighing_a_region_costs_it(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_backend.CBackend, "cost", boom)
    result = checked(chain(), tmp_path, lenient, Options(levels=("v2",)))
    assert not result.plan.regions and [(f.stage, len(f.nodes)) for f in result.faults] == [("capture", COUNT)]


def raises_on(kind: str, then: Callable[..., object], at: int = 0) -> Callable[..., object]:
    """`then`, unless one of the nodes of the region at that place of the arguments is of that kind."""

    def run(*arguments: object, **named: object) -> object:
        if any(node.op_type == kind for node in arguments[at].nodes):  # pyright: ignore[reportAttributeAccessIssue]
            boom()
        return then(*arguments, **named)

    return run


def test_writing_a_region_costs_a_part_of_it(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_backend, "write_region", raises_on("Tanh", c_backend.write_region))
    result = checked(chain(), tmp_path, lenient)
    assert f"n{BAD}" in left(result) and len(left(result)) <= 4
    (fault,) = result.faults
    assert fault.stage == "generate" and set(fault.nodes) == left(result)


@pytest.mark.parametrize("step", ["schedule", "kernel_of"])
def test_scheduling_and_emitting_cost_a_part(tmp_path: Path, lenient: Config, monkeypatch, step: str) -> None:
    from smelt.codegen.c import region

    inner = getattr(region, step)
    monkeypatch.setattr(region, step, lambda *given: boom() if "tanh" in repr(made := inner(*given)) else made)
    result = checked(chain(), tmp_path, lenient)
    assert f"n{BAD}" in left(result) and len(left(result)) <= 4
    (fault,) = result.faults
    assert (fault.stage, fault.error) == ("generate", "BoomError: planted") and set(fault.nodes) == left(result)


def test_packing_costs_a_part_of_its_region(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    from smelt.check import variants

    inner = variants.with_inputs
    monkeypatch.setattr(variants, "with_inputs", lambda *given: boom() if "tanh" in repr(given[1]) else inner(*given))
    (tmp_path / "cache").mkdir(mode=0o700)  # what was examined before is not examined again
    result = checked(chain(), tmp_path, lenient.with_(cache_dir=tmp_path / "cache"))
    assert f"n{BAD}" in left(result) and len(left(result)) <= 4
    assert [fault.stage for fault in result.faults] == ["examine"]


def test_examining_costs_the_kernels(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells whose fault it is: no region raises alone."""
    monkeypatch.setattr(smelt.kernels, "examine", boom)
    result = checked(chain(), tmp_path, lenient)
    assert not result.plan.regions and [fault.stage for fault in result.faults] == ["examine"]
    assert result.artifact.manifest["library"] is None


def test_rewriting_costs_the_kernels(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smelt.pipeline, "attach_packed", boom)
    result = checked(chain(), tmp_path, lenient)
    assert not result.plan.regions and [fault.stage for fault in result.faults] == ["rewrite"]


def test_tuning_costs_the_choice_of_sizes(tmp_path: Path, lenient: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    monkeypatch.setattr(smelt.kernels, "choose_settings", boom)
    result = checked(chain(), tmp_path, lenient, dataclasses.replace(OPTIONS, tune=True))
    assert [fault.stage for fault in result.faults] == ["tune"]


@pytest.mark.parametrize("what", ["op", "pass", "capture", "write", "examine", "rewrite"])
def test_strict_raises(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    from smelt.passes.common_subexpressions import CommonSubexpressions

    planted = {
        "pass": (CommonSubexpressions, "__call__"),
        "capture": (smelt.pipeline, "capture"),
        "write": (c_backend, "write_region"),
        "examine": (smelt.kernels, "examine"),
        "rewrite": (smelt.pipeline, "attach_packed"),
    }
    if what == "op":
        monkeypatch.setitem(lookup("", "Tanh", 17).__dict__, "lowering", boom)
    else:
        monkeypatch.setattr(*planted[what], boom)
    with pytest.raises((BoomError, PassError)):
        compile_to(chain(), tmp_path / "out", OPTIONS, config)
    assert not (tmp_path / "out").exists()


# the compiler fails


def planted_c(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """C in front of every kernel that computes Tanh."""
    import dataclasses

    write = c_backend.write_region

    def spoiled(region, *rest):
        code = write(region, *rest)
        if all(node.op_type != "Tanh" for node in region.nodes):
            return code
        kernels = tuple(dataclasses.replace(kernel, text=text + kernel.text) for kernel in code.kernels)
        return dataclasses.replace(code, kernels=kernels)

    monkeypatch.setattr(c_backend, "write_region", spoiled)


def test_c_that_does_not_compile_costs_its_part(tmp_path: Path, lenient: Config, monkeypatch) -> None:
    planted_c(monkeypatch, "#error planted\n")
    result = checked(chain(), tmp_path, lenient)
    assert f"n{BAD}" in left(result) and len(left(result)) <= 4
    (fault,) = result.faults
    assert fault.stage == "build" and "CompileError" in fault.error and "#error planted" in fault.error
    assert set(fault.nodes) == left(result)


def fake_compiler(folder: Path, on_marker: str) -> str:
    """gcc, but where the source holds the marker."""
    script = folder / "cc"
    script.write_text(
        '#!/bin/sh\nfor a in "$@"; do case $a in *.c) grep -q PLANTED $a && '
        f'{{ {on_marker} ; }};; esac; done\nexec gcc "$@"\n'
    )
    script.chmod(0o700)
    return str(script)


@pytest.mark.parametrize("how", ["crash", "hang", "nothing"])
def test_a_compiler_that_dies_costs_a_part(tmp_path: Path, lenient: Config, monkeypatch, how: str) -> None:
    deeds = {"crash": "echo internal compiler error >&2; kill -SEGV $$", "hang": "exec sleep 60", "nothing": "exit 0"}
    planted_c(monkeypatch, "/* PLANTED */\n")
    limit_s = 12.0 if how == "hang" else 300.0
    config = lenient.with_(cc=fake_compiler(tmp_path, deeds[how]), cc_from="SMELT_CC", compile_timeout_s=limit_s)
    result = checked(chain(), tmp_path, config)
    assert f"n{BAD}" in left(result) and (how == "hang" or len(left(result)) <= 4)
    (fault,) = result.faults
    assert fault.stage == "build" and "CompileError" in fault.error


def test_a_compiler_that_compiles_nothing_costs_the_kernels(tmp_path: Path, lenient: Config) -> None:
    result = checked(chain(), tmp_path, lenient.with_(cflags="-nonsense"))
    assert not result.plan.regions and [fault.stage for fault in result.faults] == ["build"]
    assert [stage.name for stage in result.stages].count("build") == 1


def test_strict_raises_what_a_compiler_says(tmp_path: Path, config: Config, monkeypatch) -> None:
    planted_c(monkeypatch, "#error planted\n")
    with pytest.raises(CompileError, match="#error planted"):
        compile_to(chain(), tmp_path / "out", OPTIONS, config)


# a kernel misbehaves under verification


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("__builtin_trap();", "died of SIG"),
        ('for (;;) { __asm__ volatile(""); }', "no end"),
        ("*(volatile int *)8 = 1;", "died of SIGSEGV"),
    ],
    ids=["traps", "hangs", "writes elsewhere"],
)
def test_a_kernel_that_dies_costs_its_region(
    two_regions: onnx.ModelProto, spoil, tmp_path: Path, lenient: Config, code: str, said: str
) -> None:
    spoil(1, code)
    options = Options(levels=("v2",), force=True, exclude=("MatMul", "Transpose"))
    result = checked(two_regions, tmp_path, lenient.with_(verify_timeout_s=20.0), options)
    assert {region.index for region in result.plan.regions} == {0}
    (fault,) = result.faults
    assert fault.stage == "verify" and said in fault.error and fault.nodes == ("Sigmoid", "Sub")


def test_a_kernel_that_writes_nan_costs_a_part(tmp_path: Path, lenient: Config, monkeypatch) -> None:
    planted_c(monkeypatch, "#undef tanh_f32\n#define tanh_f32(x) div_f32(sub_f32(x, x), sub_f32(x, x))\n")
    result = checked(chain(), tmp_path, lenient)
    assert f"n{BAD}" in left(result) and len(left(result)) <= 4
    (fault,) = result.faults
    assert fault.stage == "verify" and "nan" in fault.error.lower() and set(fault.nodes) == left(result)
