"""`onnxruntime.InferenceSession` over a compiled model.

Input: the arguments of a stock session. Output: the same class's object, which runs the artifact where there is one.
Invariant: arguments that ask for something else than a fast CPU session (another provider, a saved optimized model,
no optimization) get stock; so does an artifact that does not load.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast
from weakref import WeakSet

import onnxruntime

from smelt.base import environment
from smelt.base.cpus import usable_cpus
from smelt.base.log import logger, tell
from smelt.frontends.session.found import Wanted
from smelt.frontends.session.known import Opening, recall
from smelt.frontends.session.options import with_library
from smelt.runtime.own_sessions import own_sessions

_ort = cast("Any", onnxruntime)
_LOG: Final = "session"
_CPU = "CPUExecutionProvider"
STOCK_KEY: Final = "smelt.stock"
_replaced: WeakSet[Any] = WeakSet()
Construct = Callable[..., None]


class Request(NamedTuple):
    """The arguments of a session."""

    model: Any
    options: Any
    providers: Sequence[Any] | None
    provider_options: Any
    more: dict[str, Any]

    @property
    def name(self) -> str:
        return "a model in memory" if isinstance(self.model, bytes) else str(self.model)

    def construct(self, session: Any, construct: Construct) -> None:
        construct(session, self.model, self.options, self.providers, self.provider_options, **self.more)


def open_session(session: Any, construct: Construct, request: Request, wanted: Wanted) -> None:
    """Construct `session` over the compiled model, or as stock does."""
    reason = unsuitable(request)
    found = reason or _known(request, wanted) or _looked_up(request, wanted)
    if isinstance(found, Opening):
        try:
            _construct_over(session, construct, request, found)
            return
        except Exception as error:  # onnxruntime raises many kinds
            found = f"its artifact does not load: {error}"
    logger(_LOG).warning("%s runs on stock ONNX Runtime: %s", request.name, found)
    with own_sessions():
        request.construct(session, construct)


def _known(request: Request, wanted: Wanted) -> Opening | None:
    """What an earlier session of this model opened."""
    known = not isinstance(request.model, bytes) and not wanted.options
    return recall(os.fsdecode(request.model), _ort.__version__) if known else None


def _looked_up(request: Request, wanted: Wanted) -> Opening | str:
    from smelt.frontends.session.opening import opening_of

    return opening_of(request.model, request.name, wanted)


def unsuitable(request: Request) -> str:
    """Why these arguments ask for stock; empty when they do not."""
    if not isinstance(request.model, (str, bytes, os.PathLike)):
        return "the model is neither a path nor bytes"
    if str(cast("object", request.model)).endswith(".ort") or (
        isinstance(request.model, bytes) and request.model[4:8] == b"ORTM"
    ):
        return "it is in ONNX Runtime's own format"
    options = request.options
    if options is not None:
        if options.optimized_model_filepath:
            return "its optimized form is to be saved"
        if options.graph_optimization_level == _ort.GraphOptimizationLevel.ORT_DISABLE_ALL:
            return "optimizations are switched off"
        if options.has_providers():
            return "its providers are chosen by device"
        if _switched_off(options):
            return f"its options say {STOCK_KEY}"
        if options in _replaced:
            return "initializers are replaced by its options"
    available = set(_ort.get_available_providers())
    asked = [p if isinstance(p, str) else p[0] for p in (request.providers or _ort.get_available_providers())]
    others = [p for p in asked if p in available and p not in (_CPU, "AzureExecutionProvider")]
    return f"it asks for {others[0]}" if others else ""


def _switched_off(options: Any) -> bool:
    try:
        return options.get_session_config_entry(STOCK_KEY) == "1"
    except Exception:  # how onnxruntime says that there is no such entry
        return False


def _watch_initializers() -> None:
    """Options that replace initializers do so by name, and an artifact has others: such sessions are stock's."""
    kind = _ort.SessionOptions
    for name in ("add_initializer", "add_external_initializers"):
        original = getattr(kind, name, None)
        if original is not None and not hasattr(original, "__wrapped__"):
            setattr(kind, name, _watched(original))


def _watched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        _replaced.add(self)
        return original(self, *args, **kwargs)

    return call


_watch_initializers()


def _stock(request: Request, construct: Construct) -> Any:
    session = _ort.InferenceSession.__new__(_ort.InferenceSession)
    with own_sessions():
        request.construct(session, construct)
    return session


def _construct_over(session: Any, construct: Construct, request: Request, opening: Opening) -> None:
    options = with_library(request.options, opening.library)
    threads = _threads(options)
    more = {**request.more, "enable_fallback": 0}  # a failure is told here, not printed
    with own_sessions():
        construct(session, opening.model, options, request.providers, request.provider_options, **more)
    if int(request.more.get("enable_fallback", 1)) == 1:
        session.enable_fallback()
    if opening.frozen:
        from smelt.frontends.session.overrides import run_overrides_on_stock

        run_overrides_on_stock(session, opening.frozen, lambda: _stock(request, construct))
    if not isinstance(request.model, bytes):
        session._model_path = os.fspath(request.model)  # programs look for files beside their model
    kernels = "compiled kernels" if opening.library else "stock's kernels, since none of its own was kept"
    tell(_LOG, "%s runs on %s, threads: %s", request.name, kernels, threads)


def _threads(options: Any) -> str:
    """How many, and who says so. What is left open is set where a cgroup allows fewer than ONNX Runtime would take."""
    if options.intra_op_num_threads:
        return f"{options.intra_op_num_threads} (its options)"
    configured, cpus = environment.threads(), usable_cpus()
    options.intra_op_num_threads = configured or cpus.session_threads
    return f"{configured} (SMELT_THREADS)" if configured else f"{cpus.count} ({cpus.why})"


class InferenceSession(_ort.InferenceSession):
    """A drop-in for `onnxruntime.InferenceSession`: compiles at first use, and loads from the cache ever after."""

    def __init__(
        self, path_or_bytes: Any, sess_options: Any = None, providers: Sequence[Any] | None = None,
        provider_options: Any = None, *, compile_limit_s: float = 600.0, **more: Any,
    ) -> None:  # fmt: skip
        request = Request(path_or_bytes, sess_options, providers, provider_options, more)
        open_session(self, _ort.InferenceSession.__init__, request, Wanted(compile_limit_s))
