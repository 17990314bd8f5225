"""Strings of a model: whatever they hold, the model computes the same, and none of them reaches generated C."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from build import F, model, node
from onnx import helper
from sandbox import Sandbox

MARK = "Zq7evil"
FAST = {
    "quote": '"; ' + MARK + '(); //"',
    "comment": f"*/ {MARK} /*",
    "newline": f'\n#include "{MARK}"\n',
    "continued": f"{MARK}\\\n",
    "format": f"%n%s%n{MARK}",
    "shell": f"$(touch {MARK})`touch {MARK}`;touch {MARK}|&",
    "bidi": f"\u202e{MARK}\u2066",
    "path": f"../../{MARK}",
}
SLOW = {
    "nul": f"{MARK}\0after",
    "trigraph": f"??/{MARK}??/",
    "raw": f'R"({MARK})"',
    "macro": f"__FILE__{MARK}__COUNTER__",
    "megabyte": MARK + "x" * 1_000_000,
    "astral": f"\U0001f525{MARK}\ud7ff\ufffd",
    "template": f"{{{{ {MARK} }}}}{{0.__class__}}@NAME@%(x)s",
    "option": f"-o{MARK}",
    "absolute": f"/tmp/{MARK}",
    "markup": f"<script>{MARK}</script>&amp;",
}
STRANGE = [*(pytest.param(s, id=k) for k, s in FAST.items())]
STRANGE += [pytest.param(s, id=k, marks=pytest.mark.full) for k, s in SLOW.items()]
X = np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5)


def decorated(text: str) -> onnx.ModelProto:
    """A model with `text` in every field that may hold any text."""
    proto = model(
        [
            node("Add", [f"x{text}", f"c{text}"], [f"a{text}"], name=f"1{text}", doc_string=text),
            node("Tanh", [f"a{text}"], [f"b{text}"], name=f"2{text}"),
            node("Mul", [f"b{text}", f"x{text}"], [f"d{text}"], name=f"3{text}"),
            node("Softmax", [f"d{text}"], [f"y{text}"], name=f"4{text}"),
        ],
        {f"x{text}": (F, [text, f"second{text}"])},
        {f"y{text}": (F, [text, f"second{text}"])},
        {f"c{text}": np.full((1, 5), 0.5, np.float32)},
    )
    proto.graph.name = proto.graph.doc_string = text
    proto.producer_name = proto.producer_version = proto.domain = proto.doc_string = text
    helper.set_model_props(proto, {text: text})
    for inner in proto.graph.node:
        inner.metadata_props.add(key=text, value=text)
    for value in (*proto.graph.input, *proto.graph.output):
        value.doc_string = text
    proto.graph.initializer[0].doc_string = text
    return proto


@pytest.mark.parametrize("text", STRANGE)
def test_strange_text_everywhere_changes_nothing(sandbox: Sandbox, text: str) -> None:
    answer = sandbox.submit(decorated(text), {f"x{text}": X}, marker=MARK)
    assert answer.is_right_or_refused(), str(answer)
    assert not answer.leaked
    assert not answer.debris
    if answer.status == "compiled":
        # A size with a name of a megabyte is too much for the size algebra; ONNX Runtime keeps those nodes.
        assert answer.kernels == answer.nodes == 4 or len(text) > 1000
        assert answer.verdicts == ["right"]


def test_ordinary_text_takes_the_same_way(sandbox: Sandbox) -> None:
    """The check for leaks sees what is there: the region's own name is in the source."""
    assert sandbox.submit(decorated("plain"), {"xplain": X}, marker="r0").leaked


@pytest.mark.parametrize(
    "names",
    [
        ("a.b", "a_b", "a/b", "a-b", "a b"),
        ("int", "for", "while", "restrict", "r0"),
        ("in0", "out0", "env", "smelt_env", "i0"),
        ("main", "memcpy", "RegisterCustomOps", "k0", "NULL"),
    ],
    ids=["collide", "keywords", "generated", "symbols"],
)
def test_names_that_collide_with_each_other_or_with_c(sandbox: Sandbox, names: tuple[str, ...]) -> None:
    a, b, c, d, e = names
    proto = model(
        [
            node("Add", [a, b], [c], name=d),
            node("Exp", [c], [d], name=a),
            node("Sub", [d, a], [e], name=b),
        ],
        {a: (F, [c, d]), b: (F, [c, d])},
        {e: (F, [c, d])},
    )
    answer = sandbox.submit(proto, {a: X, b: -X})
    assert answer.is_right() and answer.kernels == 3, str(answer)


def test_nodes_without_names_are_told_apart(sandbox: Sandbox) -> None:
    proto = model(
        [node("Exp", "x", "a"), node("Neg", "a", "b"), node("Exp", "b", "y")],
        {"x": (F, ["", ""])},
        {"y": (F, ["", ""])},
    )
    for one in proto.graph.node:
        one.name = ""
    answer = sandbox.submit(proto, {"x": X})
    assert answer.is_right(), str(answer)


@pytest.mark.parametrize("text", [pytest.param(FAST["quote"], id="quote"), pytest.param(FAST["shell"], id="shell")])
@pytest.mark.parametrize("place", ["op_type", "domain", "attribute", "attribute_name"])
def test_strange_text_where_it_has_a_meaning_is_an_error(sandbox: Sandbox, text: str, place: str) -> None:
    """No runtime has such an operator, so there is no right answer; the error says so and nothing is left behind."""
    strange = node("Relu", "a", "b")
    if place == "op_type":
        strange.op_type = text
    elif place == "domain":
        strange.domain = text
    elif place == "attribute":
        strange = node("BitShift", "a a", "b", direction=text)
    else:
        strange.attribute.append(helper.make_attribute(text, 1))
    proto = model(
        [node("Exp", "x", "a"), strange, node("Exp", "b", "y")], {"x": (F, [3, 5])}, {"y": (F, [3, 5])}, domains=[text]
    )
    answer = sandbox.submit(proto, {"x": X}, marker=MARK)
    assert answer.is_sound(), str(answer)
    assert not answer.leaked and not answer.debris


def test_no_file_was_made_by_any_name(sandbox: Sandbox) -> None:
    """After the cases above: nothing in the sandbox is called as the marker."""
    sandbox.submit(decorated(FAST["shell"]), {f"x{FAST['shell']}": X})
    assert not list(sandbox.folder.rglob(f"*{MARK}*"))
