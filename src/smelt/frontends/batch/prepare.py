"""Windows -> tensors and batches.

Input: a `Window` and the job's feeds. Output: `Prepared`: a tensor for each model input over the rows that can run, and
batches of rows of similar length. Invariant: every row of the window is in exactly one batch or has a reason in `bad`;
the same window gives the same batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smelt.frontends.batch.functions import Function, call, halved, said
from smelt.frontends.batch.images import decode, image_bytes, parse_steps
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.records import Feed, Job
from smelt.frontends.batch.sources import Window
from smelt.frontends.batch.tensors import Bad, Dense, Ragged, Tensor, null_rows, plain, tensor_of
from smelt.runtime import InputSpec

Array = npt.NDArray[Any]
_FILLED: Final = frozenset(("mask", "ones", "zeros", "positions"))


@dataclass(frozen=True)
class Prepared:
    """`count`: rows of the window. `rows`: those that run. `tensors` and `batches` count among these. `groups`: which
    inputs share a padded length, each with its rows' lengths."""

    count: int
    kept: Any
    rows: Array
    tensors: Mapping[str, Tensor]
    batches: Sequence[Array]
    groups: Mapping[str, Array]
    bad: Bad


class Preparer:
    """Prepares windows of one job. `specs`: the model's inputs."""

    def __init__(self, job: Job, specs: Sequence[InputSpec], function: Function | None, batch: int) -> None:
        self.job = job
        self.specs = {spec.name: spec for spec in specs}
        self.function = function
        self.batch = batch
        self.image = parse_steps(job.image)
        self._tokenize = _tokenizer(job) if job.text else None
        self._decoders = ThreadPoolExecutor(max(1, job.threads)) if any(f.kind == "image" for f in job.feeds) else None

    def __call__(self, window: Window) -> Prepared:
        bad = dict(window.bad)
        kept = window.table.select([name for name in self.job.keep if name in window.table.column_names])
        table, rows = self._preprocessed(window.table, bad)
        used = [feed for feed in self.job.feeds if feed.kind not in _FILLED]
        table, rows = _without_nulls(table, rows, used, bad)
        tensors: dict[str, Tensor] = {}
        # A pass more for each kind of bad row that shows only when the others are gone.
        while True:
            found: Bad = {}
            tensors = {feed.input: self._tensor(feed, table, found) for feed in used}
            if not found:
                found = self._unequal(tensors)
            if not found:
                break
            bad.update({int(rows[row]): why for row, why in found.items()})
            good = np.array([row for row in range(len(rows)) if row not in found], np.int64)
            table, rows = table.take(good), rows[good]
        groups = self._groups(tensors)
        return Prepared(window.table.num_rows, kept, rows, tensors, self._batches(len(rows), groups), groups, bad)

    # Columns

    def _preprocessed(self, table: Any, bad: Bad) -> tuple[Any, Array]:
        rows = np.array([row for row in range(table.num_rows) if row not in bad], np.int64)
        if self.function is None:
            return (table.take(rows) if bad else table), rows
        pa, function = package("pyarrow"), self.function
        pieces: list[tuple[Array, Any]] = []
        for at in range(0, len(rows), self.batch):
            pieces += halved(
                rows[at : at + self.batch],
                lambda chosen: call(function, table.take(chosen), self.job.batch_format, "the preprocessing function"),
                lambda row, error: bad.update({row: f"preprocessing: {said(error)}"}),
            )
        if not pieces:
            return table.slice(0, 0), rows[:0]
        made = pa.concat_tables([piece for _, piece in pieces], promote_options="permissive")
        return made, np.concatenate([chosen for chosen, _ in pieces])

    def _tensor(self, feed: Feed, table: Any, bad: Bad) -> Tensor:
        if not len(table):
            return Dense(np.empty((0, 1)))
        spec = self.specs[feed.input]
        if feed.kind == "text" and self._tokenize is not None:
            return self._tokenize(table.column(feed.columns[0]), spec.dtype)
        if feed.kind == "image":
            return self._images(table.column(feed.columns[0]), spec, bad)
        parts = [
            tensor_of(table.column(name), name, spec.dtype, _dims(spec, feed), self.job.cast) for name in feed.columns
        ]
        for _, found in parts:
            for row, why in found.items():
                bad.setdefault(row, why)
        if len(parts) == 1:
            return parts[0][0]
        return Dense(np.stack([_scalars(tensor) for tensor, _ in parts], axis=1))

    def _images(self, column: Any, spec: InputSpec, bad: Bad) -> Tensor:
        assert self._decoders is not None
        cells = [image_bytes(cell) for cell in column]
        dtype = spec.dtype or np.dtype(np.float32)
        jobs = [self._decoders.submit(decode, cell, self.image, dtype) for cell in cells]
        made: list[Array | None] = []
        for row, job in enumerate(jobs):
            try:
                made.append(_fitting(job.result(), spec))
            except ValueError as error:
                bad[row] = str(error)
                made.append(None)
        good = [image for image in made if image is not None]
        blank = np.zeros_like(good[0]) if good else np.zeros(1, dtype)
        return Dense(np.stack([blank if image is None else image for image in made]))

    # Lengths

    def _key(self, name: str) -> str:
        shape = self.specs[name].shape
        size = shape[1] if shape is not None and len(shape) > 1 else None
        return f"dim {size}" if isinstance(size, str) else f"input {name}"

    def _unequal(self, tensors: Mapping[str, Tensor]) -> Bad:
        """Rows whose lists must be of one length, and are not."""
        seen: dict[str, tuple[str, Array]] = {}
        bad: Bad = {}
        for name, tensor in tensors.items():
            sizes = tensor.lengths()
            if sizes is None:
                continue
            first, others = seen.setdefault(self._key(name), (name, sizes))
            for row in np.flatnonzero(sizes != others):
                bad[int(row)] = f"{name} has {sizes[row]} values and {first} has {others[row]}"
        return bad

    def _groups(self, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
        groups: dict[str, Array] = {}
        for name, tensor in tensors.items():
            sizes = tensor.lengths()
            if sizes is not None:
                groups.setdefault(self._key(name), sizes)
        return groups

    def _batches(self, count: int, groups: Mapping[str, Array]) -> list[Array]:
        order = _by_length(count, groups)
        return [order[at : at + self.batch] for at in range(0, count, self.batch)]

    def order(self, prepared: Prepared) -> Array:
        """The prepared rows as batches take them."""
        return _by_length(len(prepared.rows), prepared.groups)

    def feeds(self, prepared: Prepared, rows: Array) -> dict[str, Array]:
        """The inputs of one call of the model."""
        longest = {key: int(sizes[rows].max(initial=0)) for key, sizes in prepared.groups.items()}
        made: dict[str, Array] = {}
        for name, tensor in prepared.tensors.items():
            made[name] = np.ascontiguousarray(tensor.take(rows, longest.get(self._key(name), 0)))
        for feed in self.job.feeds:
            if feed.kind in _FILLED:
                made[feed.input] = self._filled(feed, made[feed.like], prepared.tensors[feed.like], rows)
        return made

    def _filled(self, feed: Feed, like: Array, tensor: Tensor, rows: Array) -> Array:
        shape = like.shape[:2]
        dtype = self.specs[feed.input].dtype or like.dtype
        if feed.kind == "zeros":
            return np.zeros(shape, dtype)
        if feed.kind == "positions":
            return np.broadcast_to(np.arange(shape[1], dtype=dtype), shape).copy()
        sizes = tensor.lengths()
        if feed.kind == "ones" or sizes is None:
            return np.ones(shape, dtype)
        inside = np.arange(shape[1], dtype=np.int64) < sizes[rows][:, None]
        return np.asarray(inside, dtype)


def _by_length(count: int, groups: Mapping[str, Array]) -> Array:
    """Longest first: the largest call is the first one, and memory grows no more after it."""
    if not groups:
        return np.arange(count)
    longest: Array = np.sum(list(groups.values()), axis=0)
    return np.argsort(-longest, kind="stable")


def _dims(spec: InputSpec, feed: Feed) -> Sequence[int | str | None] | None:
    return spec.shape if len(feed.columns) == 1 else None


def _scalars(tensor: Tensor) -> Array:
    assert isinstance(tensor, Dense)
    return tensor.values


def _fitting(image: Array, spec: InputSpec) -> Array:
    wanted = (spec.shape or ())[1:]
    if len(wanted) == image.ndim and any(
        isinstance(w, int) and w != h for w, h in zip(wanted, image.shape, strict=True)
    ):
        raise ValueError(f"an image of shape {list(image.shape)}, the model takes {list(wanted)}")
    return image


def _without_nulls(table: Any, rows: Array, feeds: Sequence[Feed], bad: Bad) -> tuple[Any, Array]:
    missing = np.zeros(len(rows), bool)
    for name in (name for feed in feeds for name in feed.columns):
        found = null_rows(table.column(name)) if len(rows) else missing
        for row in np.flatnonzero(found & ~missing):
            bad[int(rows[row])] = f"column {name!r} is null or holds a null"
        missing = missing | found
    if not missing.any():
        return table, rows
    good = np.flatnonzero(~missing)
    return table.take(good), rows[good]


def _tokenizer(job: Job) -> Any:
    assert job.text is not None
    tokenizer = package("tokenizers").Tokenizer.from_file(job.text.tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if job.text.max_length:
        tokenizer.enable_truncation(job.text.max_length)

    def tokenize(column: Any, dtype: np.dtype[Any] | None) -> Ragged:
        encoded = tokenizer.encode_batch_fast(plain(column).to_pylist())
        ids = [one.ids for one in encoded]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in ids], dtype=np.int64)])
        flat = np.fromiter((token for one in ids for token in one), dtype or np.dtype(np.int64), int(offsets[-1]))
        return Ragged(flat, offsets)

    return tokenize
