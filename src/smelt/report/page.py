"""Report -> one HTML page that needs nothing else.

Input: a `Report`. Output: HTML text. Invariant: no resource is loaded from anywhere, and the page's own script is the
only one that a browser will run (by its digest in the content security policy); names of the model enter only through
template escaping or as JSON without any `<`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from smelt.report.facts import Report
from smelt.report.readable import counted, in_bytes, in_time
from smelt.report.scaling import assumptions
from smelt.report.tables import listed

if TYPE_CHECKING:
    import jinja2

_FOLDER: Final = Path(__file__).parent / "templates"
_SCRIPTS: Final = ("layout.js", "graph.js", "page.js")


def format_html(report: Report) -> str:
    """The whole page."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            codes=report.codes,
            whole_us=report.times.kernel_us + report.times.fallback_us if report.times else 0.0,
            assumptions=assumptions(report.scaling) if report.scaling else "",
            style=_text("page.css"),
            script=script,
            script_digest=digest,
            data=embedded(page_data(report)),
        )
    )


def page_data(report: Report) -> dict[str, Any]:
    """What the script draws. Repeated strings are stored once and named by their place."""
    texts = _Texts()
    nodes = [
        [
            texts.place(node.op),
            node.name,
            node.region,
            texts.place(node.reason),
            list(node.sources),
            [texts.place(value) for value in node.inputs],
            [texts.place(value) for value in node.outputs],
            [texts.place(value) for value in node.attributes],
        ]
        for node in report.picture.nodes
    ]
    regions = [[r.index, r.entry, r.time_us, r.bound_us, r.error, listed(r.ops, 4), r.nodes] for r in report.regions]
    kernels = {code.entry: [_kernel_row(kernel) for kernel in code.kernels] for code in report.codes}
    fallback_times = {name: us for _, name, us in report.times.fallbacks} if report.times else {}
    return {
        "texts": texts.items,
        "nodes": nodes,
        "regions": regions,
        "kernels": kernels,
        "fallbackTimes": fallback_times,
        "sources": [list(source) for source in report.sources],
        "timed": report.times is not None,
    }


def _kernel_row(kernel: Any) -> list[Any]:
    facts = [kernel.name, kernel.kind, list(kernel.nodes), kernel.units, kernel.flops, kernel.bytes]
    return [*facts, kernel.time_us, kernel.bound_us]


class _Texts:
    def __init__(self) -> None:
        self.items: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        found = self._places.setdefault(text, len(self.items))
        if found == len(self.items):
            self.items.append(text)
        return found


def embedded(content: object) -> str:
    """JSON that can stand inside a script element: ASCII, without `<`, `>` and `&`."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=1)
def _script() -> str:
    return "\n".join(["'use strict';", *(_text(name) for name in _SCRIPTS)])


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    # Imported at first use: most commands make no page.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    filters = cast("dict[str, Any]", environment.filters)
    filters.update(counted=counted, in_bytes=in_bytes, in_time=in_time, listed=listed)
    return environment
