"""One process that runs a user's Triton launches with Triton's interpreter, on the CPU.

Input: a folder with `job.json` (launches, and what memory there is) and an array file for each operand. Output: an
array file for each result, `said.json` with what went wrong. Invariant: each tensor lies between guards whose bytes
are known: memory that is written outside of a tensor, or an operand that is written, is told; so is a second run that
gives other bits. Needs torch, numpy and triton alone, and TRITON_INTERPRET=1 in its environment.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

GUARD_BYTES = 4096
POISON = 0xFF  # NaN in every floating type
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def main(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    said = ""
    try:
        first = _run(job, folder)
        second = _run(job, folder)
        for place in map(int, job["results"]):
            np.save(folder / f"result{place}.npy", first[place])
        same = all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        said = "" if same else "two runs gave different results"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    (folder / "said.json").write_text(json.dumps(said), encoding="utf-8")


def _run(job: Mapping[str, Any], folder: Path) -> list[Bytes]:
    """The bytes of all memory after the launches."""
    memory = [_guarded(one, folder) for one in job["memory"]]
    before = [held.copy() for held in memory]
    for launch in job["launches"]:
        _launch(launch, memory, job["memory"], folder)
    for one, old, new in zip(job["memory"], before, memory, strict=True):
        inside = slice(GUARD_BYTES, GUARD_BYTES + one["bytes"])
        if not np.array_equal(np.delete(old, inside), np.delete(new, inside)):
            raise ValueError(f"memory outside of {one['name']} is written")
        if one["file"] and not np.array_equal(old[inside], new[inside]):
            raise ValueError(f"{one['name']} is written, which is an operand")
    return [held[GUARD_BYTES : GUARD_BYTES + one["bytes"]] for one, held in zip(job["memory"], memory, strict=True)]


def _guarded(one: Mapping[str, Any], folder: Path) -> Bytes:
    made = np.full(one["bytes"] + 2 * GUARD_BYTES, POISON, np.uint8)
    if one["file"]:
        made[GUARD_BYTES : GUARD_BYTES + one["bytes"]] = np.load(folder / one["file"])
    return made


def _launch(
    launch: Mapping[str, Any], memory: Sequence[Bytes], told: Sequence[Mapping[str, Any]], folder: Path
) -> None:
    if not all(launch["grid"]):
        return
    function = getattr(_module(folder / launch["module"]), launch["function"])
    given = {one["name"]: _argument(one, memory, told) for one in launch["arguments"]}
    given |= {name: _constant(value) for name, value in launch["constants"].items()}
    function[tuple(launch["grid"])](**given)


def _argument(one: Mapping[str, Any], memory: Sequence[Bytes], told: Sequence[Mapping[str, Any]]) -> Any:
    if "place" not in one:
        return one["value"]
    import torch

    place = int(one["place"])
    dtype: Any = getattr(torch, str(told[place]["torch"]))
    held = memory[place][GUARD_BYTES:]
    whole: Any = torch.from_numpy(held[: held.size - held.size % 16]).view(dtype)  # pyright: ignore
    return whole[int(one["offset"]) :]


def _constant(value: Any) -> Any:
    """A type of Triton's comes as its name."""
    import triton.language as language

    return getattr(language, value[3:]) if isinstance(value, str) and value.startswith("tl.") else value


def _module(path: Path) -> Any:
    if path.stem not in sys.modules:
        found = importlib.util.spec_from_file_location(path.stem, path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[path.stem] = module
        found.loader.exec_module(module)
    return sys.modules[path.stem]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
