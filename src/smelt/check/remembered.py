"""Findings in the cache: what was examined once is not examined again.

Input: everything that findings depend on. Output: a key, and findings found or put under it. Invariant: the key covers
the model with its weights, the library, the inputs given, what was asked for, the examining code, ONNX Runtime and the
CPU; findings that say that something could not be examined are not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from smelt.base.sources import examining_sources
from smelt.base.target import host_features
from smelt.base.version import __version__
from smelt.check.findings import Examination, Findings, Timed, Verdict
from smelt.check.weights_digest import WeightsDigest
from smelt.ir.records import Library, Region
from smelt.ops.user import digest_of_kernels
from smelt.runtime import ort_version
from smelt.toolchain import Cache

_FORMAT: Final = 5
# Reasons that a busy machine may give, and a later run may not.
_PASSING: Final = ("not verified", "did not end", "no end after", "memory limit")


def findings_key(regions: Sequence[Region], library: Library, wanted: Examination, weights: WeightsDigest) -> str:
    """A digest of all that decides the findings; `weights` is that of the model, which has not changed since."""
    digest = hashlib.sha256()
    asked = [wanted.verify, wanted.tune, wanted.threads, wanted.keep_unverified, wanted.known]
    facts = [_FORMAT, __version__, library.key, library.sha256, asked, ort_version(), sorted(host_features())]
    places = [(region.index, [value.name for value in region.outputs]) for region in regions]
    digest.update(json.dumps([facts, places]).encode())
    digest.update(examining_sources().encode())
    digest.update(digest_of_kernels().encode())
    digest.update(weights.of_graphs)
    digest.update(json.dumps([[n, *s] for n, s in wanted.shapes.items()]).encode())
    for name, array in (item for call in (wanted.feeds or {}, *wanted.more_feeds) for item in call.items()):
        given = np.ascontiguousarray(array)
        digest.update(f"{name}\0{given.dtype}\0{given.shape}\0".encode())
        text = given.dtype.kind == "O"  # an object's bytes are its address
        digest.update(b"recorded" if wanted.recorded else str(given.tolist()).encode() if text else given.tobytes())
    digest.update(weights.digest())
    return digest.hexdigest()


def recall(cache: Cache, key: str) -> Findings | None:
    """The findings kept under `key`."""
    entry = cache.find(key)
    if entry is None:
        return None
    try:
        return _read(json.loads(entry.path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(cache: Cache, key: str, findings: Findings) -> None:
    """Keep findings that would come out the same again."""
    if findings.notes or any(part in reason for reason in findings.rejected.values() for part in _PASSING):
        return
    with cache.work() as folder:
        file = folder / "findings"
        content: dict[str, Any] = {
            "verdicts": [asdict(v) for v in findings.verdicts],
            "rejected": list(findings.rejected.items()),
            "faults": list(findings.faults.items()),
            "timed": [asdict(one) for one in findings.timed],
            "compared": dict(findings.compared),
        }
        file.write_text(json.dumps(content), encoding="utf-8")
        cache.put(key, file, {"smelt": __version__, "kind": "findings"}, "")


def _read(content: dict[str, Any]) -> Findings:
    verdicts = tuple(_verdict(fields) for fields in content["verdicts"])
    rejected = {int(index): str(reason) for index, reason in content["rejected"]}
    faults = {int(index): kind for index, kind in content["faults"]}
    timed = tuple(Timed(**one) for one in content["timed"])
    return Findings(verdicts, rejected, faults=faults, timed=timed, compared=content["compared"])


def _verdict(fields: dict[str, Any]) -> Verdict:
    tuples = {name: tuple(fields[name] or ()) for name in ("levels", "failing", "ratio")}
    changed: dict[str, Any] = {**tuples, "ratio": tuples["ratio"] or None}
    return Verdict(**{**fields, **changed})
