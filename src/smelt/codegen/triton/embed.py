"""Binaries as units of C: string literals, and the table that a launch reads.

Input: a kernel, its configurations and their binaries. Output: a `Unit`. Invariant: no byte of a binary is spelled so
that a neighbour changes its meaning; the unit is the same for the same binaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from smelt.ir.records import Unit

from .binaries import Binary
from .kernel import Config, TritonKernel

_LINE: Final = 1024
_PLAIN: Final = frozenset(range(32, 127)) - {ord('"'), ord("\\"), ord("?")}
_TEXT: Final = [chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in range(256)]


def kernel_unit(kernel: TritonKernel, made: Mapping[Config, Sequence[Binary]]) -> Unit:
    lines = ["#include <smelt/device/launch.h>"]
    for place, config in enumerate(kernel.configs):
        lines += _binaries(f"{kernel.name}_{place}", made.get(config, ()), text=_is_last(kernel, config))
    lines.append(f"static const smelt_device_config {kernel.name}_configs[] = {{")
    lines += [_config_line(kernel, place, config, made.get(config, ())) for place, config in enumerate(kernel.configs)]
    pointers = 0 if kernel.arguments else len(kernel.buffers)
    counts = f"{len(kernel.configs)}, {pointers}, {len(kernel.arguments or kernel.sizes)}, {int(kernel.wide)}"
    chosen = f"SMELT_CONFIG_{kernel.name}"
    lines += [
        "};",
        f"#ifndef {chosen}",
        f"#define {chosen} 0",
        "#endif",
        f"const smelt_device_kernel {kernel.name} = {{",
    ]
    lines += [f'  "{kernel.name}", {kernel.name}_configs, {counts}, {chosen}}};', ""]
    return Unit(f"triton_{kernel.name}", "\n".join(lines), per_level=False, optimize=0, kernels=(kernel.name,))


def _config_line(kernel: TritonKernel, place: int, config: Config, made: Sequence[Binary]) -> str:
    bits = sum(1 << bit for bit in config.divisible)
    name = f"{kernel.name}_{place}"
    count = sum(2 if one.target.ptx and _is_last(kernel, config) else 1 for one in made)
    sizes = f"{config.rows}, {config.most_columns}, {config.block}, {config.passes}, UINT64_C({bits})"
    return f'  {{"{config.function}", {sizes}, {name}_binaries, {count}, {name}_loaded}},'


def _is_last(kernel: TritonKernel, config: Config) -> bool:
    """Text that a driver compiles is there once: a GPU without a binary runs the configuration without conditions."""
    return config is kernel.configs[-1]


def _binaries(name: str, made: Sequence[Binary], *, text: bool) -> list[str]:
    lines: list[str] = []
    rows: list[str] = []
    for place, one in enumerate(made):
        kind, arch = ("SMELT_HSACO", 0) if one.target.kind == "hip" else ("SMELT_CUBIN", one.target.arch)
        images = [(kind, one.image)] + ([("SMELT_PTX", one.text.encode())] if one.target.ptx and text else [])
        for number, (form, image) in enumerate(images):
            data = f"{name}_{place}_{number}"
            lines.append(f"static const char {data}[] __attribute__((aligned(16))) =\n{literal(image)};")
            rows.append(f"  {{{data}, {len(image)}, {form}, {arch}, {one.threads}, {one.shared}, {one.registers}}},")
    lines.append(f"static const smelt_device_binary {name}_binaries[] = {{")
    return [*lines, *rows, "};", f"static smelt_device_loaded {name}_loaded[2 * SMELT_MOST_DEVICES];"]


def literal(data: bytes) -> str:
    """Octal escapes always have three digits, so that a digit may follow."""
    pieces = (data[start : start + _LINE] for start in range(0, len(data), _LINE))
    return "\n".join('"' + "".join(_TEXT[byte] for byte in piece) + '"' for piece in pieces) or '""'
