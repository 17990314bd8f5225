"""What is handed from stage to stage.

Input: nothing. Output: frozen records, each of which can be written as JSON and read back. Invariant: a `Job` read
from a manifest is the job that was written.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

PROBED: Final = ("result_schema", "batch", "workers", "threads", "measured")
FeedKind = Literal["column", "text", "image", "mask", "ones", "zeros", "positions"]


@dataclass(frozen=True)
class InputFile:
    """One file, or one folder of images. `digest` is what `digests.py` made of its bytes."""

    path: str
    format: str
    size_bytes: int
    digest: str
    rows: int
    row_bytes: float  # of one row in memory, about


@dataclass(frozen=True)
class Part:
    """One row group of one file. `first` and `last` mean what the file's format makes of them."""

    index: int
    file: int
    first: int
    last: int
    first_row: int
    rows: int

    @property
    def stem(self) -> str:
        return f"part-{self.index:06d}"


@dataclass(frozen=True)
class Feed:
    """Where one model input comes from. Several columns of numbers make one vector. `like`: the input whose lengths a
    filled one follows."""

    input: str
    kind: FeedKind
    columns: tuple[str, ...] = ()
    like: str = ""


@dataclass(frozen=True)
class Text:
    """How a text column becomes tokens. `digest` is the tokenizer file's."""

    tokenizer: str
    max_length: int
    digest: str


@dataclass(frozen=True)
class ModelRef:
    """`digest` is that of what the user named; `artifact` is what runs. `stock`: the plain ONNX file."""

    source: str
    digest: str
    artifact: str
    stock: bool = False

    def __str__(self) -> str:
        return f"{self.source}, {'stock' if self.stock else 'compiled'}"


@dataclass(frozen=True)
class FunctionRef:
    """A user's function as `module:name`; no module where it lives in the calling program alone."""

    name: str
    digest: str
    importable: bool


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs to make any part. The last five are what the probe found; `measured` is what it
    timed: [workers, threads, batch, rows per second]."""

    output: str
    model: ModelRef
    files: tuple[InputFile, ...]
    parts: tuple[Part, ...]
    schema: str
    feeds: tuple[Feed, ...]
    keep: tuple[str, ...]
    outputs: tuple[str, ...]
    text: Text | None = None
    image: tuple[str, ...] = ()
    cast: bool = False
    drop_failed: bool = False
    preprocess: FunctionRef | None = None
    postprocess: FunctionRef | None = None
    batch_format: str = "arrow"
    part_format: str = "parquet"
    batch: int = 0
    workers: int = 0
    threads: int = 0
    result_schema: str = ""
    measured: tuple[tuple[float, ...], ...] = ()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def mapping(self) -> dict[str, Any]:
        """All that decides what is in a row of the output, apart from the model and the input."""
        names = ("feeds", "keep", "outputs", "text", "image", "cast", "drop_failed", "preprocess", "postprocess")
        every = asdict(self)
        chosen = {name: every[name] for name in (*names, "batch_format", "part_format")}
        if chosen["text"]:
            del chosen["text"]["tokenizer"]  # its digest counts, not its place
        return chosen


@dataclass(frozen=True)
class RowError:
    """One row that has no result. `row` counts from 0 in its file."""

    file: str
    row: int
    reason: str


@dataclass(frozen=True)
class PartRecord:
    """A finished part: written when its file is in place."""

    part: int
    file: str
    rows: int
    size_bytes: int
    sha256: str
    errors: tuple[RowError, ...] = ()


@dataclass
class Stages:
    """Seconds that each stage was busy, and that inference waited; rows done."""

    read: float = 0.0
    prepare: float = 0.0
    infer: float = 0.0
    write: float = 0.0
    wait: float = 0.0
    rows: int = 0
    failed: int = 0

    def add(self, other: Mapping[str, Any]) -> None:
        for name, value in other.items():
            setattr(self, name, getattr(self, name) + value)

    def taken(self) -> dict[str, Any]:
        """What was added since the last call."""
        now = asdict(self)
        for name in now:
            setattr(self, name, type(now[name])())
        return now


@dataclass
class Told:
    """A worker's account of itself, for the pool. `kind`: progress, done, failed, fatal."""

    kind: str
    part: int = -1
    text: str = ""
    stages: dict[str, Any] = field(default_factory=dict[str, Any])
    rows: int = 0
    failed: int = 0


def job_from_json(content: Mapping[str, Any]) -> Job:
    """The inverse of `asdict`; unknown fields are a newer version's and are an error."""
    given = dict(content)
    for name, kind in (("files", InputFile), ("parts", Part)):
        given[name] = tuple(kind(**one) for one in given[name])
    given["feeds"] = tuple(_feed(one) for one in given["feeds"])
    given["model"] = ModelRef(**given["model"])
    given["text"] = Text(**given["text"]) if given["text"] else None
    for name in ("preprocess", "postprocess"):
        given[name] = FunctionRef(**given[name]) if given[name] else None
    for name in ("keep", "outputs", "image"):
        given[name] = tuple(given[name])
    given["measured"] = tuple(tuple(one) for one in given["measured"])
    return Job(**given)


def _feed(content: dict[str, Any]) -> Feed:
    columns: list[str] = content.pop("columns")
    return Feed(**content, columns=tuple(columns))


def record_from_json(content: dict[str, Any]) -> PartRecord:
    errors: list[dict[str, Any]] = content.pop("errors")
    return PartRecord(**content, errors=tuple(RowError(**one) for one in errors))


def digest_of_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def schema_to_text(schema: Any) -> str:
    """An Arrow schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_from_text(text: str) -> Any:
    from smelt.frontends.batch.packages import package

    pa = package("pyarrow")
    return package("pyarrow.ipc").read_schema(pa.py_buffer(base64.b64decode(text)))
