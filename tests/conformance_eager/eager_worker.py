"""One process that runs entries of the database on the device: a JSON request per line in, a JSON answer per line out.

Input: {"name", "dtype", "limit"} on stdin. Output: {"status", "forms": {form: {"status", "runs", "detail"}}, "natives",
"fallbacks"} on the stream that stdout was. Invariant: memory is limited; a form is as good as its worst sample.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance"), str(HERE.parent / "conformance_torch")]
from serving import Answer, Request, serve  # noqa: E402

MEMORY_BYTES = 12_000_000_000
# Forms whose results on the CPU are no reference.
FAULTS = {
    (name, form): "PyTorch exchanges argument and result on the way, so that its own result is what the memory held"
    for name in ("fft.ihfft2", "fft.ihfftn")
    for form in ("out", "empty out")
}
# From worst to best. `refused`: the CPU raises as well, or torch has no sample.
STATUSES = ("crashed", "hanged", "error", "mismatch", "silent", "pass", "refused")


def main() -> None:
    serve(_prepare, MEMORY_BYTES)


def _prepare() -> Callable[[Request], Answer]:
    import torch
    from opinfo_samples import entries

    import smelt.frontends.eager  # noqa: F401

    torch.set_num_threads(1)
    known = entries()
    return lambda request: run_entry(known[request["name"]], request)


def run_entry(entry: Any, request: dict[str, Any]) -> dict[str, Any]:
    from eager_forms import forms_of

    import smelt.frontends.eager as eager

    eager.reset_counts()
    samples = _samples(entry, request)
    wanted = [form for form in forms_of(entry, request["dtype"]) if samples and (entry.name, form) not in FAULTS]
    forms = {form: _run_form(form, entry, samples) for form in wanted}
    if request["dtype"] == "float32" and request.get("errors", True):
        forms["errors"] = _run_errors(entry)
    return {
        "status": worst(f["status"] for f in forms.values()),
        "forms": forms,
        "natives": eager.natives(),
        "fallbacks": [[f.op, f.reason, f.count] for f in eager.fallbacks()],
    }


def _samples(entry: Any, request: dict[str, Any]) -> list[Any]:
    from opinfo_samples import samples_of

    try:
        return samples_of(entry, request["dtype"], request["limit"])
    except Exception:  # torch's own generator of samples is at fault
        return []


def worst(statuses: Any) -> str:
    return min(statuses, key=STATUSES.index, default="refused")


def _run_form(form: str, entry: Any, samples: list[Any]) -> dict[str, Any]:
    found = [_run_sample(form, entry, sample) for sample in samples]
    return _summary(found)


def _summary(found: list[tuple[str, str]]) -> dict[str, Any]:
    status = worst(s for s, _ in found)
    detail = next((d for s, d in found if s == status), "")
    return {"status": status, "runs": sum(s != "refused" for s, _ in found), "detail": detail}


def _run_sample(form: str, entry: Any, sample: Any) -> tuple[str, str]:
    from eager_forms import run
    from opinfo_compare import Mismatch, compare
    from opinfo_modes import in_double
    from opinfo_samples import ANY_PLACE, UNINITIALIZED

    want, got = run(form, entry, sample, "cpu"), run(form, entry, sample, "ort")
    if want.error is not None:
        return _compared_errors(want.error, got)
    if got.error is not None:
        resized = form == "out" and "is not resized on this device" in str(got.error)
        return "refused" if resized else "error", _short(got.error)  # the CPU warns that this will be an error
    try:
        if entry.name in ANY_PLACE and form != "backward":
            _adopt_places(entry, sample, got, want)
        values = entry.name not in UNINITIALIZED
        compare(got.value, want.value, lambda: run(form, entry, in_double(sample), "cpu").value, values=values)
    except Mismatch as error:
        return "mismatch", str(error)
    return "pass", ""


def _compared_errors(wanted: Exception, got: Any) -> tuple[str, str]:
    if got.error is None:
        return "silent", f"the CPU raises {_short(wanted)}"
    if not isinstance(got.error, type(wanted)):
        return "error", f"{_short(got.error)} where the CPU raises {_short(wanted)}"
    return "refused", _short(wanted)


def _adopt_places(entry: Any, sample: Any, got: Any, want: Any) -> None:
    """Any of several equal elements may be named."""
    from opinfo_worker import _with_places

    value = got.value[0] if isinstance(got.value, tuple) and isinstance(got.value[1], (list, type(None))) else got.value
    wanted = want.value[0] if value is not got.value else want.value
    from opinfo_samples import ANY_PLACE

    same = _with_places(sample, ANY_PLACE[entry.name], value, wanted)
    if same is not wanted:
        object.__setattr__(want, "value", (same, *want.value[1:]) if value is not got.value else same)


def _run_errors(entry: Any) -> dict[str, Any]:
    """Calls that torch says are wrong raise as on the CPU."""
    from eager_forms import errors_of

    try:
        wanted, got = (list(errors_of(entry, device)) for device in ("cpu", "ort"))
    except Exception as error:
        return _summary([("refused", _short(error))])
    if len(wanted) != len(got):
        return _summary([("refused", "other calls for another device")])
    return _summary([_error_status(w, g) for (_, w), (_, g) in zip(wanted, got, strict=True)])


def _error_status(wanted: Any, got: Any) -> tuple[str, str]:
    if wanted.error is None:
        return ("refused", "the CPU takes it") if got.error is None else ("error", _short(got.error))
    if got.error is None:
        return "silent", f"the CPU raises {_short(wanted.error)}"
    if not isinstance(got.error, type(wanted.error)):
        return "error", f"{_short(got.error)} where the CPU raises {_short(wanted.error)}"
    return "pass", ""


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: " + " ".join(str(error).split())
    return text if len(text) < 400 else text[:200] + " ... " + text[-200:]


if __name__ == "__main__":
    main()
