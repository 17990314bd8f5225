"""One process that runs entries of the database: a JSON request per line in, a JSON answer per line out.

Input: {"name", "dtype", "mode", "limit"} on stdin. Output: {"status", "samples": [{"status", "detail", "left"}]} on the
stream that stdout was. Invariant: memory is limited, so that an entry that runs away ends as an error and not with the
machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
from serving import Answer, Request, serve  # noqa: E402

MEMORY_BYTES = 12_000_000_000
# From worst to best: an entry is as good as its worst sample.
STATUSES = ("crashed", "hanged", "error", "mismatch", "partly", "pass", "refused")


def main() -> None:
    serve(_prepare, MEMORY_BYTES)


def _prepare() -> Callable[[Request], Answer]:
    import torch
    from opinfo_samples import entries

    torch.set_num_threads(1)
    known = entries()
    return lambda request: run_entry(known[request["name"]], request)


def run_entry(entry: Any, request: dict[str, Any]) -> dict[str, Any]:
    import torch
    from opinfo_samples import ANY_PLACE, UNINITIALIZED, samples_of

    blank, place = entry.name in UNINITIALIZED, ANY_PLACE.get(entry.name)
    with torch.no_grad():
        samples = samples_of(entry, request["dtype"], request["limit"])
        found = [run_sample(sample, request["mode"], blank=blank, place=place) for sample in samples]
    return {"status": worst(f["status"] for f in found), "samples": found}


def worst(statuses: Any) -> str:
    return min(statuses, key=STATUSES.index, default="refused")


def run_sample(sample: Any, mode: str, *, blank: bool = False, place: int | None = None) -> dict[str, Any]:
    import opinfo_modes as modes
    from opinfo_compare import Mismatch, compare
    from opinfo_samples import is_random

    reference = modes.reference_of(mode)
    try:
        want = reference(sample).value
        values = not blank and not is_random(sample)
    except Exception as error:  # the sample itself is at fault
        return {"status": "refused", "detail": f"eager: {_short(error)}"}
    try:
        outcome = modes.MODES[mode](sample)
        if place is not None and mode != "gradients":
            want = _with_places(sample, place, outcome.value, want)
        compare(outcome.value, want, lambda: reference(modes.in_double(sample)).value, values=values)
    except Mismatch as error:
        return {"status": "mismatch", "detail": str(error)}
    except Exception as error:
        return _blame(sample, mode, error)
    return {"status": "partly" if outcome.fallback_nodes else "pass", "left": sorted(set(outcome.fallback_nodes))}


def _with_places(sample: Any, position: int, got: Any, want: Any) -> Any:
    """The places that were found, if they hold the values that are wanted."""
    import torch
    from opinfo_compare import places_that_hold

    source, rest = sample.arguments[0], sample.arguments[position:]
    dim = rest[0] if rest else sample.keywords.get("dim", -1)
    if sample.keywords.get("stable"):
        return want
    if isinstance(want, torch.Tensor) and want.dtype == torch.int64 and want.shape == source.shape:  # places alone
        same = (
            bool(source.dim())
            and got.shape == want.shape
            and places_that_hold(source, got, source.gather(dim, want), dim)
        )
        return got if same else want
    if not isinstance(want, tuple) or len(want) != 2 or got[1].shape != want[1].shape:
        return want
    return (want[0], got[1]) if places_that_hold(source, got[1], want[0], dim) else want


def _blame(sample: Any, mode: str, error: Exception) -> dict[str, Any]:
    """An error is ours unless aot_eager raises as well."""
    import opinfo_modes as modes

    detail = f"{type(error).__name__}: {_short(error)}"
    try:
        (modes.aot_gradients if mode == "gradients" else modes.aot_eager)(sample)
    except Exception:
        return {"status": "refused", "detail": detail}
    return {"status": "error", "detail": detail}


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 600 else text[:300] + " ... " + text[-300:]


if __name__ == "__main__":
    main()
