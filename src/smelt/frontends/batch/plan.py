"""Everything that a run is about -> a `Job`.

Input: files, a model, options. Output: a job without what the probe finds, in one order for the first run and all
reruns. Invariant: files that an earlier run knew keep their places, new ones come after them; a job that would make
other rows than the earlier one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from smelt.base.errors import ConfigError, InputError
from smelt.frontends.batch.digests import file_digest, listing_digest, whole_digest
from smelt.frontends.batch.functions import Function, call, reference, resolve, said
from smelt.frontends.batch.images import parse_steps
from smelt.frontends.batch.mapping import map_columns, retyped
from smelt.frontends.batch.model_call import ModelCall, check_batch
from smelt.frontends.batch.output_folder import ENDINGS
from smelt.frontends.batch.records import Feed, InputFile, Job, ModelRef, Part, Text, digest_of_json, schema_to_text
from smelt.frontends.batch.sources import Facts, find_files, format_of, inspect_file
from smelt.frontends.batch.sources.find import image_files
from smelt.runtime import InputSpec

_READERS: Final = 8
_TEXTUAL: Final = frozenset(("csv", "jsonl"))


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. 0 or None where the choice is left to smelt."""

    map: Mapping[str, str] = field(default_factory=dict[str, str])
    keep: Sequence[str] | None = None
    outputs: Sequence[str] = ()
    text: str | None = None
    tokenizer: str | None = None
    max_length: int = 0
    image: Sequence[str] = ()
    cast: bool = False
    drop_failed: bool = False
    preprocess: Function | str | None = None
    postprocess: Function | str | None = None
    batch_format: str = "arrow"
    part_format: str = "parquet"
    batch: int = 0


@dataclass(frozen=True)
class Data:
    """The files, inspected."""

    files: tuple[InputFile, ...]
    facts: tuple[Facts, ...]


def find_data(patterns: Any, earlier: Job | None) -> Data:
    """Every file with its facts; those of an earlier run first, in its order."""
    found = find_files(patterns)
    known = {file.path: place for place, file in enumerate(earlier.files)} if earlier else {}
    found.sort(key=lambda one: known.get(str(one[0]), len(known)))
    with ThreadPoolExecutor(_READERS) as pool:
        inspected = list(pool.map(_inspected, [path for path, _ in found], [kind for _, kind in found]))
    return Data(tuple(file for file, _ in inspected), tuple(facts for _, facts in inspected))


def _inspected(path: Path, kind: str) -> tuple[InputFile, Facts]:
    try:
        facts = inspect_file(path, kind)
        digest = listing_digest(path, image_files(path)) if kind == "images" else file_digest(path)
        size = path.stat().st_size
    except OSError as error:
        raise InputError("SM-BATCH-003", f"{path} cannot be read: {error.strerror}") from error
    rows = sum(piece.rows for piece in facts.pieces)
    return InputFile(str(path), kind, size, digest, rows, facts.row_bytes), facts


def parts_of(data: Data) -> tuple[Part, ...]:
    parts: list[Part] = []
    for place, facts in enumerate(data.facts):
        row = 0
        for piece in facts.pieces:
            parts.append(Part(len(parts), place, piece.first, piece.last, row, piece.rows))
            row += piece.rows
    return tuple(parts)


def make_job(output: Path, model: ModelRef, data: Data, wanted: Wanted, tokenizer: Path | None) -> Job:
    """The job, before anything of it ran."""
    session = ModelCall(model, 1)
    text = _text(wanted, tokenizer)
    first, schema, feeds, keep = _mapped(session.inputs, data, wanted, text is not None)
    if wanted.part_format not in ENDINGS:
        raise ConfigError("SM-CONFIG-001", f"--format {wanted.part_format!r} is not one of {', '.join(ENDINGS)}")
    job = Job(
        output=str(output), model=model, files=data.files, parts=parts_of(data), schema=schema_to_text(schema),
        feeds=feeds, keep=keep, outputs=_outputs(session, wanted), text=text if _tokenizes(feeds) else None,
        image=tuple(wanted.image), cast=wanted.cast, drop_failed=wanted.drop_failed,
        preprocess=reference(wanted.preprocess), postprocess=reference(wanted.postprocess),
        batch_format=wanted.batch_format, part_format=wanted.part_format,
    )  # fmt: skip
    _check_schemas(job, data, first, schema)
    return job


def check_mapping(specs: Sequence[InputSpec], data: Data, wanted: Wanted, tokenized: bool) -> None:
    """Mistakes in names and types, told before the model is compiled. Columns that a function makes are seen later."""
    if wanted.preprocess is None:
        _mapped(specs, data, wanted, tokenized)


def _mapped(
    specs: Sequence[InputSpec], data: Data, wanted: Wanted, tokenized: bool
) -> tuple[int, Any, tuple[Feed, ...], tuple[str, ...]]:
    """The first file with rows, the schema, what feeds the model, what passes through."""
    first = next((place for place, facts in enumerate(data.facts) if facts.pieces), 0)
    schema = data.facts[first].schema
    if not schema.names:
        raise InputError("SM-BATCH-003", f"{data.files[first].path} is empty: it has neither columns nor rows")
    if data.files[first].format in _TEXTUAL:
        schema = retyped(schema, specs, wanted.map, tokenized)
    mapped = _preprocessed_schema(data, first, schema, wanted)
    feeds = map_columns(specs, mapped, wanted.map, text=wanted.text, tokenized=tokenized, cast_=wanted.cast)
    check_batch(specs, feeds, wanted.batch)
    _check_images(wanted, any(feed.kind == "image" for feed in feeds))
    used = {name for feed in feeds for name in feed.columns}
    return first, schema, feeds, _kept(wanted, schema, used)


def _tokenizes(feeds: Sequence[Any]) -> bool:
    return any(feed.kind == "text" for feed in feeds)


def _text(wanted: Wanted, with_model: Path | None) -> Text | None:
    place = Path(wanted.tokenizer).expanduser() if wanted.tokenizer else with_model
    if place is None:
        return None
    folder = place if place.is_dir() else place.parent
    file = place / "tokenizer.json" if place.is_dir() else place
    if not file.is_file():
        raise InputError("SM-BATCH-003", f"there is no tokenizer {file}", hint="Give a tokenizer.json or its folder.")
    return Text(str(file.absolute()), wanted.max_length or _max_length(folder), whole_digest(file))


def _max_length(folder: Path) -> int:
    """What the files beside the tokenizer say: Sentence Transformers' first, then the tokenizer's own; 0: no limit."""
    import json

    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        try:
            found = json.loads((folder / name).read_bytes()).get(key)
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(found, int) and 0 < found < 1 << 20:
            return found
    return 0


def _preprocessed_schema(data: Data, first: int, schema: Any, wanted: Wanted) -> Any:
    """The columns that the mapping sees: what the preprocessing function makes of the first rows."""
    if wanted.preprocess is None or not data.facts[first].pieces:
        return schema
    function = resolve(wanted.preprocess) if isinstance(wanted.preprocess, str) else wanted.preprocess
    file, piece = data.files[first], data.facts[first].pieces[0]
    source = format_of(file.format).read(Path(file.path), piece, schema, schema.names, 4)
    window = next(source)
    try:
        return call(function, window.table, wanted.batch_format, "the preprocessing function").schema
    except Exception as error:
        raise InputError(
            "SM-BATCH-012", f"the preprocessing function failed on the first rows: {said(error)}"
        ) from error


def _check_images(wanted: Wanted, used: bool) -> None:
    steps = parse_steps(wanted.image)
    if wanted.image and not used:
        raise InputError("SM-BATCH-005", "--image is given, and no input of the model is fed with images")
    if used and not steps.crop and len(steps.resize) != 2:
        raise InputError(
            "SM-BATCH-005", "images of different sizes are no batch",
            hint="Declare one size: --image resize=256,crop=224, or --image resize=224x224.",
        )  # fmt: skip


def _kept(wanted: Wanted, schema: Any, used: set[str]) -> tuple[str, ...]:
    if wanted.keep is None:
        return tuple(name for name in schema.names if name not in used and name != "image")
    if list(wanted.keep) == ["*"]:
        return tuple(schema.names)
    for name in wanted.keep:
        if name not in schema.names:
            raise InputError("SM-BATCH-004", f"--keep: no column {name!r}. The data has {', '.join(schema.names)}")
    return tuple(wanted.keep)


def _outputs(session: ModelCall, wanted: Wanted) -> tuple[str, ...]:
    names = [spec.name for spec in session.outputs]
    for name in wanted.outputs:
        if name not in names:
            raise InputError("SM-BATCH-004", f"--outputs: no output {name!r}. The model has {', '.join(names)}")
    return tuple(wanted.outputs) or tuple(names)


def _check_schemas(job: Job, data: Data, first: int, schema: Any) -> None:
    """Every file must have the columns of the first one that are used, with the same types."""
    wanted = {name for feed in job.feeds for name in feed.columns} | set(job.keep)
    if job.preprocess is not None:
        wanted = set(schema.names)
    for file, facts in zip(data.files, data.facts, strict=True):
        if not facts.pieces or (file.format in _TEXTUAL and file.format == data.files[first].format):
            names = set(facts.schema.names) if facts.pieces else wanted
            missing = sorted(wanted - names)
            if missing and file.format == "csv":
                raise _other_schema(file, data.files[first], facts.schema, schema, f"has no column {missing[0]!r}")
            continue
        for name in sorted(wanted):
            if name not in facts.schema.names:
                raise _other_schema(file, data.files[first], facts.schema, schema, f"has no column {name!r}")
            if not facts.schema.field(name).type.equals(schema.field(name).type):
                raise _other_schema(file, data.files[first], facts.schema, schema, f"has another type in {name!r}")


def _other_schema(file: InputFile, first: InputFile, own: Any, schema: Any, text: str) -> InputError:
    def listed(one: Any) -> str:
        return "; ".join(f"{f.name}: {f.type}" for f in one)

    return InputError("SM-BATCH-004", f"{file.path} {text}. It has {listed(own)}. {first.path} has {listed(schema)}")


def check_same(job: Job, earlier: Job, batch: int) -> None:
    """Refuse what would mix two jobs in one folder."""
    changed: list[str] = []
    if job.model.digest != earlier.model.digest:
        changed.append(f"the model (now {job.model}, then {earlier.model})")
    now, then = job.mapping(), earlier.mapping()
    if digest_of_json(now) != digest_of_json(then):
        names = [name for name in now if digest_of_json(now[name]) != digest_of_json(then[name])]
        changed.append(f"the mapping ({', '.join(names)})")
    if batch and batch != earlier.batch:
        changed.append(f"the batch size ({earlier.batch}, now {batch})")
    files = {file.path: file for file in job.files}
    for old in earlier.files:
        new = files.get(old.path)
        if new is None:
            changed.append(f"the input {old.path} (no longer there)")
        elif new.digest != old.digest:
            changed.append(f"the input {old.path} (other contents)")
    if changed:
        raise InputError("SM-BATCH-007", f"{job.output} was made with other things: {'; '.join(changed[:5])}")


def concat_allowed(earlier: Job, job: Job) -> bool:
    """Whether the earlier parts are the first parts of the new job."""
    return job.parts[: len(earlier.parts)] == earlier.parts
