"""The unit that announces a library's entries to ONNX Runtime, the same for every backend.

Input: units and entries. Output: a `Source` that can be built, with its domain. Invariant: the domain is named after
what the units are, so two libraries share one only where they are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from smelt.base.target import Target
from smelt.ir.records import Entry, Source, Unit

INCLUDE: Final = Path(__file__).parent / "c" / "include"  # kernel.h, what units may ask of their host


def announced(source: Source, targets: Sequence[Target]) -> Source:
    """The source with the unit that announces its entries, in a domain of its own."""
    digest = hashlib.sha256("\0".join(unit.text for unit in source.units).encode()).hexdigest()
    domain = f"smelt.{digest[:16]}"
    names = tuple(entry.name for entry in source.entries)
    glue = Unit("glue", _text(source.entries, domain, targets), per_level=False, optimize=1, entries=names)
    folders = tuple(dict.fromkeys((*source.include_dirs, INCLUDE)))
    return replace(source, units=(*source.units, glue), include_dirs=folders, domain=domain)


def _text(entries: Sequence[Entry], domain: str, targets: Sequence[Target]) -> str:
    lines = ["#include <smelt/base/kernel.h>", f'#define SMELT_DOMAIN "{domain}"']
    levels = {t.index: t.name for t in targets}
    for entry in entries:
        lines += [f"int32_t SMELT_AT({entry.name}, {name})(smelt_env *);" for name in levels.values()]
        lines.append(f"static const int32_t {entry.name}_in[] = {{{', '.join(map(str, entry.in_types)) or '0'}}};")
        lines.append(f"static const int32_t {entry.name}_out[] = {{{', '.join(map(str, entry.out_types)) or '0'}}};")
    lines.append("static const smelt_entry smelt_entries[] = {")
    for entry in entries:
        table = ", ".join(f"[{level}] = SMELT_AT({entry.name}, {name})" for level, name in levels.items())
        lines.append(
            f'  {{"{entry.name}", {len(entry.in_types)}, {len(entry.out_types)}, {entry.name}_in, {entry.name}_out, '
            f"{{{table}}}, NULL}},"
        )
    lines += ["};", *_device_lines(entries), "#include <smelt/ort/ort_glue.h>", ""]
    return "\n".join(lines)


def _device_lines(entries: Sequence[Entry]) -> list[str]:
    """What entries have for a GPU, beside the CPU."""
    if not any(entry.device for entry in entries):
        return []
    lines = ["#define SMELT_DEVICE_CODE", "#include <smelt/device/driver.h>"]
    for entry in entries:
        flags = ", ".join(str(int(place in entry.host_inputs)) for place in range(len(entry.in_types)))
        lines.append(f"static const uint8_t {entry.name}_on_host[] = {{{flags or '0'}}};")
        lines += [f"int32_t {entry.device}(smelt_env *);"] if entry.device else []
    lines.append("static const smelt_device_entry smelt_device_entries[] = {")
    lines += [f"  {{{entry.device or 'NULL'}, {entry.name}_on_host}}," for entry in entries]
    return [*lines, "};"]
