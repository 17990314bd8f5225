"""Printing: one readable line per node, and nothing in a model can disturb a terminal."""

from __future__ import annotations

import onnx
from onnx import parser

from smelt.ir.load import load_model
from smelt.ir.printer import format_model, shown


def sample() -> onnx.ModelProto:
    return parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[n, 8] x, bool p) => (float[n, 8] y) <float[1] two = {2.0}> {
            [first] a = Softmax <axis = 1> (x)
            y = If (p) <
                then_branch = t () => (float[n, 8] s) { s = Add (a, two) },
                else_branch = e () => (float[n, 8] r) { r = Relu (a) }
            >
        }
    """)


def test_a_model_prints_as_text() -> None:
    assert format_model(load_model(sample())) == (
        "model ir 9, opset onnx 18\n"
        "graph g(%x: float[n, 8], %p: bool[])\n"
        "  const %two: float[1] = [2.0]\n"
        "  %a = Softmax(%x) {axis=1}  # first\n"
        "  %y: float[n, 8] = If(%p) {then_branch=graph, else_branch=graph}\n"
        "    body t()\n"
        "      %s: float[n, 8] = Add(%a, %two)\n"
        "      return %s: float[n, 8]\n"
        "    body e()\n"
        "      %r: float[n, 8] = Relu(%a)\n"
        "      return %r: float[n, 8]\n"
        "  return %y: float[n, 8]\n"
    )


def test_strange_names_are_escaped_and_long_ones_shortened() -> None:
    assert shown("\x1b[2J\u202e") == "'\\x1b[2J\\u202e'"
    assert len(shown("a" * 1_000_000)) == 60
    proto = sample()
    proto.graph.node[0].name = "evil\x1b]0;\n"
    text = format_model(load_model(proto))
    assert "\x1b" not in text and "evil\\x1b]0;\\n" in text
