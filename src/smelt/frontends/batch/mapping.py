"""Columns -> model inputs.

Input: the model's inputs, the schema of the data, what the user said. Output: one `Feed` for each input. Invariant: an
input without a column is an error that shows both lists; nothing is guessed but names that are the same, a single
column for a single input, and masks, types and positions of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from smelt.base.errors import InputError
from smelt.frontends.batch.packages import package
from smelt.frontends.batch.records import Feed, FeedKind
from smelt.frontends.batch.tensors import check_cast
from smelt.runtime import InputSpec

_FILLS: Final[dict[str, FeedKind]] = {"@mask": "mask", "@ones": "ones", "@zeros": "zeros", "@positions": "positions"}
_USUAL: Final[dict[str, FeedKind]] = {"attention_mask": "mask", "token_type_ids": "zeros", "position_ids": "positions"}


def map_columns(
    specs: Sequence[InputSpec], schema: Any, given: Mapping[str, str], *, text: str | None, tokenized: bool, cast_: bool
) -> tuple[Feed, ...]:
    """`given`: columns by input, as `--map` has them. `text`: the column of `--text`."""
    mapper = _Mapper(specs, schema, tokenized, cast_)
    unknown = [name for name in given if name not in mapper.specs]
    if unknown:
        raise mapper.unfit(f"the model has no input {unknown[0]!r}")
    found: dict[str, Feed] = {}
    for spec in specs:
        feed = mapper.named(spec, given.get(spec.name), text)
        if feed is not None:
            found[spec.name] = feed
    mapper.single(found)
    mapper.fill(found, given)
    if text is not None and not any(feed.kind == "text" for feed in found.values()):
        why = "the model has no input of tokens for it" if tokenized else "there is no tokenizer: give --tokenizer"
        raise mapper.unfit(f"--text {text!r} feeds nothing, {why}")
    missing = [spec.name for spec in specs if spec.name not in found]
    if missing:
        raise mapper.unfit(f"no column for input {missing[0]!r}")
    return tuple(found[spec.name] for spec in specs)


class _Mapper:
    def __init__(self, specs: Sequence[InputSpec], schema: Any, tokenized: bool, cast_: bool) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.schema = schema
        self.tokenized = tokenized
        self.cast = cast_

    def unfit(self, text: str) -> InputError:
        inputs = "; ".join(str(spec) for spec in self.specs.values())
        columns = "; ".join(f"{field.name}: {field.type}" for field in self.schema)
        return InputError("SM-BATCH-004", f"{text}. The model takes {inputs}. The data has {columns or 'no columns'}")

    def named(self, spec: InputSpec, given: str | None, text: str | None) -> Feed | None:
        """By the user's word, or by its own name."""
        if given in _FILLS:
            return None
        if given is not None:
            return self._feed(spec, given.split(",") if given not in self.schema.names else [given])
        if spec.name in self.schema.names:
            return self._feed(spec, [spec.name])
        if self.tokenized and spec.name == "input_ids":
            return self._feed(spec, [text or self._text_column()])
        return None

    def single(self, found: dict[str, Feed]) -> None:
        """One input, one column that can be meant."""
        open_inputs = [spec for name, spec in self.specs.items() if name not in found and name not in _USUAL]
        if found or len(open_inputs) != 1:
            return
        spec = open_inputs[0]
        fitting = [field.name for field in self.schema if self._kind(spec, field.type) is not None]
        if len(fitting) == 1:
            found[spec.name] = self._feed(spec, fitting)

    def fill(self, found: dict[str, Feed], given: Mapping[str, str]) -> None:
        """Inputs that follow from another one's lengths."""
        like = next((f.input for f in found.values() if f.kind == "text"), next(iter(found), ""))
        for name in self.specs:
            kind = _FILLS.get(given.get(name, "")) or (None if name in found else _USUAL.get(name))
            if kind is not None and like:
                found[name] = Feed(name, kind, (), like)

    def _text_column(self) -> str:
        pa = package("pyarrow")
        texts = [f.name for f in self.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        if len(texts) == 1 or "text" in texts:
            return "text" if "text" in texts else texts[0]
        raise self.unfit(f"{len(texts)} columns of text: name one with --text")

    def _feed(self, spec: InputSpec, columns: list[str]) -> Feed:
        for name in columns:
            if name not in self.schema.names:
                raise self.unfit(f"there is no column {name!r}")
        kind = self._kind(spec, self.schema.field(columns[0]).type)
        if kind is None or any(self._kind(spec, self.schema.field(name).type) != kind for name in columns):
            told = ", ".join(f"{name}: {self.schema.field(name).type}" for name in columns)
            raise self._mistyped(f"column {told} cannot be input {spec}")
        for name in columns if kind == "column" else ():
            self._check(spec, name, len(columns))
        return Feed(spec.name, kind, tuple(columns))

    def _mistyped(self, text: str) -> InputError:
        error = self.unfit(text)
        return InputError("SM-BATCH-005", error.message)

    def _kind(self, spec: InputSpec, column: Any) -> FeedKind | None:
        pa = package("pyarrow")
        leaf, depth = leaf_type(column)
        if pa.types.is_binary(leaf) or pa.types.is_large_binary(leaf) or _is_image_struct(leaf):
            return "image" if depth == 0 and spec.dtype is not None else None
        if pa.types.is_string(leaf) or pa.types.is_large_string(leaf):
            if spec.dtype is None:
                return "column"
            return "text" if self.tokenized and depth == 0 and spec.dtype.kind in "iu" else None
        known = pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)
        known |= pa.types.is_decimal(leaf) and self.cast
        return "column" if known and spec.dtype is not None else None

    def _check(self, spec: InputSpec, name: str, columns: int) -> None:
        kind = self.schema.field(name).type
        leaf, depth = leaf_type(kind)
        if spec.dtype is not None:
            try:
                check_cast(np.dtype(leaf.to_pandas_dtype()), spec.dtype, name, self.cast)
            except InputError as error:
                raise InputError(error.code, self.unfit(error.message).message, hint=error.hint) from None
        if columns > 1:
            dims = spec.shape[1:] if spec.shape is not None else None
            if depth or (dims is not None and (len(dims) != 1 or (isinstance(dims[0], int) and dims[0] != columns))):
                raise self._mistyped(f"{columns} columns of numbers make a vector of {columns}, not input {spec}")
            return
        if spec.shape is None:
            return
        wanted, sizes = spec.shape[1:], fixed_sizes(kind)
        known = all(isinstance(size, int) for size in wanted)
        if len(sizes) == len(wanted):
            fits = all(not isinstance(w, int) or s is None or w == s for w, s in zip(wanted, sizes, strict=True))
        else:
            flat = len(sizes) == 1 or not sizes
            total = int(np.prod([size for size in wanted if isinstance(size, int)]))
            fits = known and flat and (None in sizes or int(np.prod([s or 0 for s in sizes])) == total)
        if not fits:
            raise self._mistyped(f"column {name}: {kind} cannot be input {spec}")


def leaf_type(kind: Any) -> tuple[Any, int]:
    """The type inside of lists, and how many lists there are."""
    pa = package("pyarrow")
    depth = 0
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            kind, depth = kind.value_type, depth + 1
        else:
            return kind, depth


def fixed_sizes(kind: Any) -> list[int | None]:
    """The sizes of lists from the outside in; None for those that vary."""
    pa = package("pyarrow")
    sizes: list[int | None] = []
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_fixed_size_list(kind):
            sizes.append(kind.list_size)
            kind = kind.value_type
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            sizes.append(None)
            kind = kind.value_type
        else:
            return sizes


def retyped(schema: Any, specs: Sequence[InputSpec], given: Mapping[str, str], tokenized: bool) -> Any:
    """Numbers in text have no type of their own: those that feed an input get its type. A column of text that is to be
    numbers has a bad value among them, which costs its row."""
    pa = package("pyarrow")
    fields = list(schema)
    for spec in specs:
        names = given.get(spec.name, spec.name).split(",")
        for place, field in enumerate(fields):
            leaf, depth = leaf_type(field.type)
            if field.name not in names or spec.dtype is None or spec.dtype.kind not in "iuf":
                continue
            is_number = pa.types.is_floating(leaf) or pa.types.is_integer(leaf) or pa.types.is_null(leaf)
            is_number |= pa.types.is_string(leaf) and not tokenized and depth == 0
            if not is_number or (pa.types.is_floating(leaf) and spec.dtype.kind != "f"):
                continue
            kind = pa.from_numpy_dtype(spec.dtype)
            for _ in range(depth):
                kind = pa.list_(kind)
            fields[place] = pa.field(field.name, kind)
    return pa.schema(fields)


def _is_image_struct(kind: Any) -> bool:
    """Hugging Face's images: a struct of bytes and path."""
    pa = package("pyarrow")
    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
