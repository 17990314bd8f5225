"""What a run of the database on the device found, as a table and as a page of the docs.

Input: the answers of the workers, by entry and dtype. Output: text. Invariant: an ATen op counts as native when ONNX
Runtime computed at least one call of it; its forms in place and with `out=` are not counted apart.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from eager_forms import FORMS
from eager_worker import FAULTS, STATUSES

Found = dict[str, dict[str, Any]]
_TITLE = """# The device `ort` against PyTorch's operator database

Written by `make conformance-eager ARGS='--limit {limit} --page docs/eager_conformance.md'`. Every entry of the `op_db`
that ships with PyTorch, on samples of float32, int64 and bool, runs on `ort` and on the CPU in every form that PyTorch
has of it; results, what was written, and errors are compared by the [numerics contract](numerics.md). Each entry
runs in a worker process, which may crash without an end to the run.

{entries} entries, {taken}, {runs} comparisons.
"""
_WHERE = """
*out*: a result of the right shape is written into; *empty out*: one without elements is resized. Where the CPU resizes
one of another shape with a warning, `ort` raises, which counts as refused. *errors*: calls that PyTorch's database says
are wrong raise the CPU's type of exception.

**{native}** ATen operators ran in ONNX Runtime, {calls} calls; **{only}** ran only on the CPU, {on_cpu} calls. Forms in
place and with `out=` are not counted apart.

## In ONNX Runtime
"""


def table(found: Found) -> str:
    """Entries by form and status, then what ran where."""
    lines = [f"{'':20}" + "".join(f"{s:>10}" for s in reversed(STATUSES))]
    lines += [f"{form:20}" + "".join(f"{counts[s]:>10}" for s in reversed(STATUSES)) for form, counts in _rows(found)]
    native, fallen = natives(found), fallbacks(found)
    return "\n".join([
        *lines,
        f"{len(native)} ATen ops ran in ONNX Runtime ({sum(native.values())} calls), "
        f"{len(set(fallen) - set(native))} only on the CPU ({sum(sum(r.values()) for r in fallen.values())} calls)",
    ])  # fmt: skip


def _rows(found: Found) -> list[tuple[str, Counter[str]]]:
    rows = [("entries and dtypes", Counter(a["status"] for a in found.values()))]
    for form in FORMS:
        rows.append((form, Counter(a["forms"][form]["status"] for a in found.values() if form in a.get("forms", {}))))
    return rows


def natives(found: Found) -> Counter[str]:
    total: Counter[str] = Counter()
    for answer in found.values():
        for op, count in answer.get("natives", {}).items():
            total[_operator(op)] += count
    return total


def fallbacks(found: Found) -> dict[str, Counter[str]]:
    """Calls that the CPU computed, by op and reason."""
    total: dict[str, Counter[str]] = {}
    for answer in found.values():
        for op, reason, count in answer.get("fallbacks", []):
            total.setdefault(_operator(op), Counter())[reason] += count
    return total


def _operator(name: str) -> str:
    """`aten.add_.Tensor` and `aten.add.out` are `add`."""
    base = name.removeprefix("aten.").partition(".")[0]
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def page(found: Found, limit: int) -> str:
    """docs/eager_conformance.md"""
    native, fallen = natives(found), fallbacks(found)
    only = sorted(set(fallen) - set(native))
    entries = {key.split()[0] for key in found}
    runs = sum(f["runs"] for a in found.values() for f in a.get("forms", {}).values())
    taken = f"at most {limit} samples, spread evenly, of each entry and dtype" if limit else "all samples"
    on_cpu = sum(sum(fallen[op].values()) for op in only)
    lines = [
        _TITLE.format(limit=limit, entries=len(entries), taken=taken, runs=f"{runs:,}"),
        "| form | same | the CPU refuses too | differs |",
        "|---|---:|---:|---:|",
        *(_form_row(form, counts) for form, counts in _rows(found)),
        _WHERE.format(native=len(native), calls=f"{sum(native.values()):,}", only=len(only), on_cpu=f"{on_cpu:,}"),
        _listed(sorted(native)),
        "\n## Not compared\n\n| entry | form | why |\n|---|---|---|",
        *(f"| {name} | {form} | {why} |" for (name, form), why in FAULTS.items()),
        "\n## On the CPU alone\n\n| reason | operators |\n|---|---|",
        *_reasons(only, fallen),
        "",
    ]
    return "\n".join(lines)


def _form_row(form: str, counts: Counter[str]) -> str:
    bad = sum(counts[s] for s in STATUSES[:5])
    return f"| {form} | {counts['pass']} | {counts['refused']} | {bad} |"


def _listed(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        text = f"`{name}`, "
        if len(line) + len(text) > 118:
            lines.append(line.rstrip())
            line = ""
        line += text
    return "\n".join([*lines, line.rstrip(", ")])


def _reasons(ops: list[str], fallen: dict[str, Counter[str]]) -> list[str]:
    grouped: dict[str, list[str]] = {}
    for op in ops:
        reason = fallen[op].most_common(1)[0][0]
        grouped.setdefault(_general(op, reason), []).append(f"`{op}`")
    return [f"| {reason} | {', '.join(names)} |" for reason, names in sorted(grouped.items())]


def _general(op: str, reason: str) -> str:
    """A reason without the name of the op and of a type."""
    return reason.replace("|", "\\|") if "aten" not in reason else "no conversion to ONNX"
