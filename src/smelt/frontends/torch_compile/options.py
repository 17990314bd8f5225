"""What a user may choose for `torch.compile(backend="smelt", options=...)`.

Input: a dictionary or a `TorchOptions`. Output: a checked `TorchOptions`. Invariant: an unknown name or a value of the
wrong kind is an error that says what was meant; nothing is ignored in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, cast

from smelt.base.config import Config
from smelt.base.errors import ConfigError
from smelt.passes import TABLE, Patterns, Rule, check_narrow
from smelt.runtime import available_providers

Provider = str | tuple[str, Mapping[str, Any]]
Transform = Callable[[Any], Any]


@dataclass(frozen=True)
class TorchOptions:
    """Options of one `torch.compile` call.

    kernels       True: native kernels wherever they can be made; False: plain ONNX Runtime; None: in graphs that
                  have enough work to do, with gradients only where that is faster at the first call
    verify        check each kernel against the reference before it is used; the answer is kept in the cache
    tune          time each kernel against what it replaces
    freeze        parameters become constants: faster, but a later change is not seen before `smelt.refresh`
    strict        raise when a node would be left to torch, or a graph falls back
    check         compare every call with torch: True, or a tolerance; "nodes": every node by itself, on torch's values
    exporter      whose conversions come first: "smelt" (the table) or "torch" (torch's own exporter); None: as the
                  environment's ONNXRT_CHANGE_REWRITER says, and the table's without it
    providers     execution providers, each a name or (name, options); None: the one of the inputs' device, which is
                  the CPU, or a GPU where onnxruntime has its provider; tensors on other devices stay in torch
    session       configuration entries of the sessions
    threads       threads of a session; 0: as many as torch uses
    transforms    functions that change the ONNX model before its session is made, in place or by returning another
    precision     "w8" or "w4": weights of products in so many bits, in blocks; "int8-dynamic": products of 8-bit
                  weights and activations; "bf16" or "fp16": weights of that type; parameters are frozen
    calibrate     calls that a lower precision is measured on, as arrays by the names of the ONNX inputs, or a path;
                  None: those of the first call. "int8" needs it where there is none
    budget        dB of signal over noise that every output keeps: layers go back to float32 until it holds
    metric        in place of dB: a function of the float32 outputs and of those to judge; more is better
    accuracy      "fast": products with weights in blocks quantize their activations to 8 bits
    skip_passes   names of passes to leave out
    patterns      which passes and rules run: a selector such as "default+ort", or a list of selectors and rules; None:
                  "default", and "training" for graphs with gradients
    dump          folder that receives every model, its FX graph and its inputs
    cache_size    sessions kept for graphs met again
    preallocate   results are written into memory of torch's own where their shapes are known before the call
    debug         run the ONNX reference evaluator and print every result (True), or hand each line to a function
    intercept     run the original graph; print each call's inputs (True) or hand them to a callback
    """

    kernels: bool | None = None
    verify: bool = True
    tune: bool = False
    freeze: bool = False
    strict: bool = False
    check: bool | float | Literal["nodes"] = False
    exporter: Literal["smelt", "torch"] | None = None
    providers: Sequence[Provider] | None = None
    session: Mapping[str, str] = field(default_factory=dict[str, str])
    threads: int = 0
    transforms: Sequence[Transform] = ()
    precision: str = ""
    accuracy: str = "exact"
    calibrate: Any = None
    budget: float | str = 0.0
    metric: Callable[..., float] | None = None
    skip_passes: Sequence[str] = ()
    patterns: Patterns | None = None
    dump: Path | None = None
    cache_size: int = 64
    preallocate: bool = True
    debug: bool | Callable[[str], None] = False
    intercept: bool | Callable[..., None] = False

    @property
    def tolerance(self) -> float | None:
        """The tolerance of `check`, or None when nothing is compared."""
        if self.check is False:
            return None
        return _TOLERANCE if self.check is True or self.check == "nodes" else float(self.check)


_TOLERANCE: Final = 1e-4
_NAMES: Final = tuple(f.name for f in dataclasses.fields(TorchOptions))
_NO_OPTIONS: Final[Mapping[str, str]] = {}
_BOOLEANS: Final = ("verify", "tune", "freeze", "strict", "preallocate")
_EXPORTERS: Final = ("smelt", "torch")
_COUNTS: Final = ("threads", "cache_size")
_MOST_THREADS: Final = 1024  # ONNX Runtime makes as many as it is told, until the machine has no more


def read_options(given: TorchOptions | Mapping[str, Any] | None, config: Config) -> TorchOptions:
    """The options as given, completed from the environment's knobs."""
    options = given if isinstance(given, TorchOptions) else _from_mapping(given or {})
    _check(options)
    check_narrow(options.precision, options.accuracy)
    threads = options.threads or config.threads
    dump = Path(options.dump) if options.dump else None
    freeze = options.freeze or bool(options.precision)
    exporter = options.exporter or config.exporter
    return dataclasses.replace(options, dump=dump, threads=threads, exporter=exporter, freeze=freeze)


def _from_mapping(given: Mapping[str, Any]) -> TorchOptions:
    if not isinstance(cast("object", given), Mapping):
        raise ConfigError("SM-CONFIG-007", f"options are a dictionary or TorchOptions, not a {type(given).__name__}")
    for name in given:
        if name not in _NAMES:
            close = get_close_matches(str(name), _NAMES, n=1)
            hint = f"Is it meant to be {close[0]!r}?" if close else f"Known are {', '.join(_NAMES)}."
            raise ConfigError("SM-CONFIG-005", f"there is no option {name!r}", hint=hint)
    return TorchOptions(**given)


def _check(options: TorchOptions) -> None:
    for name in _BOOLEANS:
        if not isinstance(getattr(options, name), bool):
            raise _wrong(options, name, "True or False")
    if options.kernels is not None and not isinstance(cast("object", options.kernels), bool):
        raise _wrong(options, "kernels", "True, False or None")
    for name in _COUNTS:
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _wrong(options, name, "a whole number from 0 on")
    if options.threads > _MOST_THREADS:
        raise _wrong(options, "threads", f"at most {_MOST_THREADS}")
    for name, wanted, fits in _KINDS:
        if not fits(getattr(options, name)):
            raise _wrong(options, name, wanted)
    _check_providers(options)
    if not _is_check(options.check):
        raise _wrong(options, "check", "True, False, a tolerance or 'nodes'")
    if options.exporter not in (None, *_EXPORTERS):
        raise _wrong(options, "exporter", "'smelt', 'torch' or None")
    TABLE.chosen(options.patterns)  # an unknown name is said now, not in the first call
    for name in options.skip_passes:
        TABLE.chosen(name)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (list, tuple)) and all(fits(item) for item in cast("list[Any]", value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_session(value: Any) -> bool:
    entries = cast("Mapping[Any, Any]", value)
    return isinstance(value, Mapping) and all(_is_text(part) for entry in entries.items() for part in entry)


def _is_patterns(value: Any) -> bool:
    return isinstance(value, (str, Rule, list, tuple))


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool) or callable(value)


# What an option has to be, in words and as a question.
_KINDS: Final[tuple[tuple[str, str, Callable[[Any], bool]], ...]] = (
    ("providers", "a list or None", lambda value: value is None or isinstance(value, (list, tuple))),
    ("session", "a dictionary of texts", _is_session),
    ("transforms", "a list of functions", _list_of(callable)),
    ("skip_passes", "a list of names", _list_of(_is_text)),
    ("patterns", "a selector, or a list of selectors and rules", lambda value: value is None or _is_patterns(value)),
    ("dump", "a folder or None", lambda value: value is None or isinstance(value, (str, PathLike))),
    ("debug", "True, False or a function", _is_switch),
    ("intercept", "True, False or a function", _is_switch),
)


def _is_check(value: object) -> bool:
    return value == "nodes" or (isinstance(value, (bool, int, float)) and value >= 0)


def _check_providers(options: TorchOptions) -> None:
    """ONNX Runtime itself only warns of a provider that it does not have, and takes another."""
    for given in cast("Sequence[object]", options.providers or ()):
        pair: tuple[object, ...] = (
            cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given, _NO_OPTIONS)
        )
        if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], Mapping):
            raise _wrong(options, "providers", "a list, each a name or a pair of a name and options")
        known = available_providers()
        if pair[0] not in known:
            message = f"this onnxruntime has no provider {pair[0]!r}"
            raise ConfigError("SM-DEVICE-001", message, hint=f"It has {', '.join(known)}.")


def _wrong(options: TorchOptions, name: str, wanted: str) -> ConfigError:
    return ConfigError("SM-CONFIG-007", f"the option {name} is {wanted}, not {getattr(options, name)!r}")
