"""The plugin execution provider: what it claims gives stock's answers, and what it cannot claim is stock's."""

from __future__ import annotations

import ctypes
import hashlib
import json
import shutil
import stat
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import smelt

TOLERANCE = 1e-5


def entries(program) -> list[Path]:
    return sorted(path for path in (program.cache / "session").iterdir() if path.name != "known")


def right(answer) -> bool:
    return answer["claimed"] and answer["same_shapes"] and answer["error"] < TOLERANCE


def test_a_miss_is_compiled_and_a_hit_is_loaded(program, compiled):
    found = entries(program)
    assert len(found) == 1
    assert not list((program.cache / "tmp").iterdir()), "the job's folder is gone"
    step = {"do": "run", "model": str(compiled), "options": program.options(python="/nowhere/python")}
    answers, log = program(step, {**step, "bytes": True}, {**step, "intra": 1}, {**step, "list": True})
    assert all(right(answer) for answer in answers), (answers, log)
    assert entries(program) == found, "by path or from memory, it is the same graph"


def test_what_is_in_the_cache_is_a_library_with_its_digest(program, compiled):
    folder = entries(program)[0] / "artifact"
    digest, name = (folder / "sha256").read_text().split()
    content = (folder / name).read_bytes()
    assert content.startswith(b"\x7fELF") and content[-32:-24] == b"SMELTEP1"
    assert hashlib.sha256(content).hexdigest() == digest
    assert json.loads((folder / "manifest.json").read_bytes())["library"] is not None
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def compiled_model(program, compiled, folder: Path) -> Path:
    folder.mkdir(mode=0o755)
    answers, log = program({"do": "compile", "model": str(compiled), "to": str(folder / "m_ctx.onnx")})
    assert [Path(name).suffix for name in answers[0]] == [".onnx", ".so"], (answers, log)
    return folder / "m_ctx.onnx"


def renamed(path: Path) -> Path:
    """The compiled model with other names at its border."""
    model = onnx.load(path)
    (node,) = model.graph.node
    node.input[0] = model.graph.input[0].name = "other\nname"
    node.output[0] = model.graph.output[0].name = "made"
    onnx.save(model, path.with_name("renamed.onnx"))
    return path.with_name("renamed.onnx")


def test_a_compiled_model_needs_no_compiler_and_no_cache(program, compiled, tmp_path):
    tmp_path.chmod(0o755)
    context = compiled_model(program, compiled, tmp_path / "out")
    library = next(context.parent.glob("*.so"))
    notes = next(a.s.decode() for a in onnx.load(context).graph.node[0].attribute if a.name == "notes")
    assert f"sha256 {hashlib.sha256(library.read_bytes()).hexdigest()}\n" in notes
    step = {
        "do": "run",
        "model": str(context),
        "stock": str(compiled),
        "options": {"cache_dir": str(tmp_path / "none"), "python": "/nowhere/python"},
        "config": {"session.disable_model_compile": "1"},
    }
    from_memory = {**step, "bytes": True, "config": {"ep.context_file_path": str(context)}}
    answers, log = program(step, {**step, "model": str(renamed(context))}, from_memory)
    assert all(right(answer) for answer in answers), (answers, log)


def test_a_compiled_model_in_one_file(program, compiled, tmp_path):
    to = tmp_path / "one.onnx"
    run = {"do": "run", "model": str(to), "stock": str(compiled), "bytes": True}
    answers, log = program({"do": "compile", "model": str(compiled), "to": str(to), "embed": True}, run)
    assert answers[0] == ["one.onnx"]
    assert right(answers[1]), (answers, log)


def flip(folder: Path, node: onnx.NodeProto) -> None:
    library = next(folder.glob("*.so"))
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def outside(folder: Path, node: onnx.NodeProto) -> None:
    next(a for a in node.attribute if a.name == "ep_cache_context").s = b"../x.so"


CHANGES = {
    "missing": (lambda folder, node: next(folder.glob("*.so")).unlink(), "is missing"),
    "altered": (flip, "was altered"),
    "outside": (outside, "does not lie in the model's folder"),
    "writable": (lambda folder, node: folder.chmod(0o777), "others can write"),
    "inputs": (lambda folder, node: node.input.append("x"), "has 2 inputs"),
}


def test_a_library_that_is_not_what_was_compiled_is_refused(program, compiled, tmp_path):
    tmp_path.chmod(0o755)
    context = compiled_model(program, compiled, tmp_path / "out").parent
    for name, (change, _) in CHANGES.items():
        shutil.copytree(context, tmp_path / name)
        model = onnx.load(tmp_path / name / "m_ctx.onnx")
        change(tmp_path / name, model.graph.node[0])
        onnx.save(model, tmp_path / name / "m_ctx.onnx")
    answers, _ = program(*({"do": "run", "model": str(tmp_path / name / "m_ctx.onnx")} for name in CHANGES))
    for (_, said), answer in zip(CHANGES.values(), answers, strict=True):
        assert isinstance(answer, str), "an error, not an answer"
        assert said in answer


def text_model(path: Path) -> Path:
    nodes = [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("Relu", ["x"], ["y"])]
    s, t = (helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in "st")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "text", [s, x], [t, y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_what_cannot_be_compiled_is_left_to_stock_with_a_reason(program, model, tmp_path):
    empty = {"cache_dir": str(tmp_path / "empty")}
    steps = [
        {"do": "run", "model": str(model), "options": program.options(**empty, compile="never")},
        {"do": "run", "model": str(model), "options": program.options(**empty, python="/nowhere/python")},
        {"do": "run", "model": str(model), "options": program.options(**empty, python="/bin/false")},
        {"do": "run", "model": str(text_model(tmp_path / "text.onnx")), "options": program.options(**empty)},
    ]
    answers, log = program(*steps)
    assert [(answer["claimed"], answer["error"]) for answer in answers] == [(False, 0.0)] * 4, log
    for said in (
        "compiling is switched off",
        "/nowhere/python could not be started",
        "/bin/false -m smelt) did not run",
        "no tensor of numbers (s)",
    ):
        assert said in log
    assert not list((tmp_path / "empty" / "tmp").iterdir())


def test_a_cache_that_others_can_write_is_not_used(program, compiled, tmp_path):
    shutil.copytree(program.cache, tmp_path / "cache")
    for folder in (tmp_path / "cache" / "session").glob("*/artifact"):
        folder.chmod(0o777)
    step = {"do": "run", "model": str(compiled), "options": program.options(cache_dir=str(tmp_path / "cache"))}
    answers, log = program(step)
    assert not answers[0]["claimed"] and answers[0]["error"] == 0.0
    assert "others can write" in log


def test_an_option_that_means_nothing_is_an_error(program, model):
    wrong = [{"thread": "2"}, {"time_limit": "soon"}, {"compile": "yes"}, {"precision": "int3"}]
    _, log = program(*({"do": "run", "model": str(model), "options": option} for option in wrong))
    for said in (
        "there is no option 'thread'; options are cache_dir",
        "time_limit='soon' is not a number",
        "not one of wait, background, never",
        "precision='int3'",
    ):
        assert said in log


def test_a_forbidden_compilation_is_told_by_onnxruntime(program, model):
    answers, _ = program({"do": "run", "model": str(model), "config": {"session.disable_model_compile": "1"}})
    assert "MODEL_REQUIRES_COMPILATION" in answers[0]


def test_the_package_and_the_compiler_are_one_release():
    sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "onnxruntime-ep-smelt" / "src"))
    try:
        import onnxruntime_ep_smelt as package
    finally:
        del sys.path[0]
    assert package.__version__ == smelt.__version__
    assert package.get_ep_names() == [package.get_ep_name()] == ["SmeltExecutionProvider"]
    assert Path(package.get_library_path()).is_absolute()


class _Base(ctypes.Structure):
    """OrtApiBase: two functions."""

    _fields_ = (
        ("get_api", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)),
        ("get_version", ctypes.CFUNCTYPE(ctypes.c_void_p)),
    )


@pytest.mark.parametrize("version", [b"1.22.1", b"1.9.0"])
def test_a_release_that_is_too_old_is_named(library, version):
    """The Python package of such releases registers no libraries; programs in C may."""
    said: list[bytes] = []

    def create_status(code: int, text: bytes) -> int:
        del code
        said.append(text)
        return 1

    slot = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(create_status)
    table = (ctypes.c_void_p * 400)(ctypes.cast(slot, ctypes.c_void_p))
    kinds, text = dict(_Base._fields_), ctypes.create_string_buffer(version)
    base = _Base(
        kinds["get_api"](lambda wanted: ctypes.addressof(table) if wanted < 23 else None),
        kinds["get_version"](lambda: ctypes.addressof(text)),
    )
    factories, count = (ctypes.c_void_p * 1)(), ctypes.c_size_t(9)
    create = ctypes.CDLL(str(library)).CreateEpFactories
    create.restype = ctypes.c_void_p
    assert create(b"smelt", ctypes.byref(base), None, factories, ctypes.c_size_t(1), ctypes.byref(count)) == 1
    assert said == [b"smelt: this provider needs ONNX Runtime 1.23 or newer, this is " + version] and count.value == 0
