"""A PyTorch module -> an ONNX model.

Input: a module (or an ExportedProgram), example arguments, which sizes vary. Output: `Exported`: the model, `save`,
`run`. Invariant: weights share torch's memory until they are saved; `run` takes and gives what the module does.
"""

# What torch hands over is not annotated.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smelt.base.config import Config
from smelt.base.errors import ConfigError, ExportError, InputError
from smelt.frontends.dumping import Dumped, dump_target
from smelt.frontends.result_names import result_names
from smelt.frontends.tracing import all_free, named_arguments, quiet
from smelt.ir.save import Saved, save_model
from smelt.passes import TABLE, OutlineModules, Patterns, run_passes, wanted_classes
from smelt.runtime import SessionSettings, session_for

if TYPE_CHECKING:
    import onnx_ir as ir

    from smelt.export import ExportReport, Translation
    from smelt.export.records import Exporter


def export_module(
    module: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
    opset: int | None = None, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
    strict: bool = False, functions: bool | Sequence[Any] = False, patterns: Patterns | None = None,
    dump_patterns: str | Path | None = None, exporter: str | None = None, verbose: bool = False,
) -> Exported:  # fmt: skip
    """Export a module, a function or a `torch.export.ExportedProgram` to ONNX.

    `dynamic_shapes` is what `torch.export.export` takes, or "auto": every size is free that the module leaves free. A
    name may stand for a dimension:

        exported = smelt.export(model, (x,), dynamic_shapes={"x": {0: "batch"}})
        exported.save("model.onnx")
        exported.run(x)

    `opset`: of the model (default 20). `input_names`, `output_names`: else those of the parameters, and of the keys or
    fields of what is returned. `strict`: torch.export's own strict mode. `functions`: submodules become
    functions of the model, all whose classes are not torch's own (True) or those of the classes listed. `patterns`: the
    rules that simplify the model, as a selector ("default", "default+ort", "none") or a list of selectors and rules;
    `dump_patterns`: a folder for what each of them changed. `exporter`: whose conversions come first, "smelt" (the
    table) or "torch" (torch's own exporter). `verbose` prints the report.
    """
    import torch

    from smelt.export import ExportOptions, translate_program
    from smelt.export.records import DEFAULT_OPSET
    from smelt.frontends.ranges import range_of

    program, names = _captured(module, tuple(args), dict(kwargs or {}), dynamic_shapes, strict)
    options = ExportOptions(
        opset=opset or DEFAULT_OPSET,
        input_names=tuple(input_names) if input_names is not None else None,
        output_names=tuple(output_names) if output_names is not None else result_names(program.call_spec.out_spec),
        dim_names=names,
        modules=bool(functions),
        standalone=True,
        exporter=_exporter(exporter),
    )
    TABLE.chosen(patterns)  # an unknown name is said before the work
    with torch.no_grad(), range_of("smelt.export"):
        translation = translate_program(program, options=options)
        exported = Exported(translation, program, _dumped(translation.model, program))
        _simplify(exported, patterns, None if dump_patterns is None else Path(dump_patterns))
        if functions:
            outlined = OutlineModules(wanted_classes(functions))(exported.model)
            exported.report.simplified("outline-modules", outlined.changes.total(), 0.0)
    if verbose:
        print(exported.report)
    return exported


def _exporter(chosen: str | None) -> Exporter:
    if chosen is None:
        return Config.from_env().exporter
    if chosen == "smelt" or chosen == "torch":
        return chosen
    raise ConfigError("SM-CONFIG-007", f"exporter is 'smelt' or 'torch', not {chosen!r}")


def _dumped(model: ir.Model, program: Any) -> Dumped | None:
    target = dump_target()
    return None if target is None else Dumped(target, model, str(program))


def _simplify(exported: Exported, patterns: Patterns | None, dump: Path | None) -> None:
    started = time.perf_counter()
    done = run_passes(exported.model, patterns=patterns, dump=dump)
    exported.report.seconds += time.perf_counter() - started
    for name, outcome in done:
        exported.report.simplified(name, outcome.changes.total(), outcome.seconds)


@dataclasses.dataclass(frozen=True)
class Exported:
    """An exported module. `program` is torch's ExportedProgram."""

    translation: Translation
    program: Any
    dumped: Dumped | None = dataclasses.field(default=None, repr=False)

    @property
    def model(self) -> ir.Model:
        return self.translation.model

    @property
    def report(self) -> ExportReport:
        return self.translation.report

    @property
    def input_names(self) -> list[str]:
        return [value.name or "" for value in self.model.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        return [value.name or "" for value in self.model.graph.outputs]

    def save(self, path: str | Path, *, external_data: bool | str | None = None) -> Saved:
        """Write the model. `external_data`: weights go to a file beside it (its name, or True), into the model itself
        (False), or beside it when they are large (None)."""
        path = Path(path)
        size = sum(v.const_value.nbytes for v in self.model.graph.initializers.values() if v.const_value is not None)
        apart = external_data if external_data is not None else size > 64 << 20
        name = apart if isinstance(apart, str) else None
        return save_model(self.model, path, data_name=name, min_bytes=1024 if apart else 1 << 62)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run in ONNX Runtime; arguments and results as the module's own."""
        import torch.utils._pytree as pytree

        fed, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.program.call_spec.in_spec:
            raise InputError(
                "SM-INPUT-001", "the arguments have another structure than those the module was exported with"
            )
        feeds = dict(self._feeds(fed))
        made = self._session.run(None, feeds) if self.output_names else []
        if self.dumped is not None and self.dumped.wanted:
            self.dumped.call(feeds, dict(zip(self.output_names, made, strict=True)))
        results = [_result(slot, made, fed) for slot in self.translation.outputs]
        return pytree.tree_unflatten(results, self.program.call_spec.out_spec)

    def _feeds(self, fed: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        for slot, value in zip(self.translation.inputs, fed, strict=True):
            if slot.index is not None:
                yield self.input_names[slot.index], _fed(value)

    @cached_property
    def _session(self) -> Any:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="smelt-") as folder:
            saved = self.save(Path(folder) / "model.onnx")
            return session_for(saved.model_path, settings=SessionSettings())


def _fed(value: Any) -> Any:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().contiguous().cpu().numpy()
    return np.asarray(value)


def _result(slot: Any, made: Sequence[Any], fed: Sequence[Any]) -> Any:
    import torch

    if slot.kind == "input":
        return fed[slot.index]
    if slot.kind in ("none", "constant"):
        return slot.value
    value = made[slot.index]
    return torch.from_numpy(value) if slot.kind == "tensor" else value.item()


def _captured(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, strict: bool
) -> tuple[Any, dict[str, str]]:
    """torch's exported program, and the names of its symbols."""
    import torch
    from torch.export import ExportedProgram

    if isinstance(module, ExportedProgram):
        return module, {}
    if not isinstance(module, torch.nn.Module):
        module = _as_module(module)
    try:
        with quiet(), named_arguments(module, args, kwargs):
            free = isinstance(dynamic_shapes, str) and dynamic_shapes == "auto"
            shapes = (
                all_free(module, args, kwargs) if free else _complete(_spelled(dynamic_shapes), module, args, kwargs)
            )
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=strict)
            return program, dict(_symbol_names(program, module, args, kwargs, dynamic_shapes))
    except Exception as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError("SM-EXPORT-003", f"torch.export cannot capture this module: {text}") from error


def _as_module(function: Callable[..., Any]) -> Any:
    import torch

    if not callable(function):
        raise ExportError("SM-EXPORT-003", f"a {type(function).__name__} is no module, function or exported program")

    class Function(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    Function.forward.__signature__ = _method_signature(function)  # pyright: ignore[reportFunctionMemberAccess]
    return Function()


def _method_signature(function: Callable[..., Any]) -> inspect.Signature:
    """torch.export pairs arguments and dynamic shapes by name."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        rest = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        rest = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
    return inspect.Signature([own, *rest])


def _complete(shapes: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """None for the arguments that nothing was said of: torch.export wants every one."""
    if not isinstance(shapes, Mapping) or not shapes:
        return shapes
    try:
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # tracing says what is wrong
        return shapes
    return {**shapes, **{name: None for name in given if name not in shapes}}


def _spelled(shapes: Any) -> Any:
    """Names of dimensions as torch's marker for a size that varies."""
    from torch.export import Dim

    if isinstance(shapes, str):
        return Dim.DYNAMIC  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(shapes, Mapping):
        return {key: _spelled(value) for key, value in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return type(shapes)(_spelled(item) for item in shapes)
    return shapes


def _symbol_names(
    program: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
) -> Iterator[tuple[str, str]]:
    """symbol -> the user's name, read from tensors and their dynamic shapes side by side."""
    if not shapes or isinstance(shapes, str):
        return
    from torch.export.graph_signature import InputKind

    user = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    metas = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    values = iter(metas.get(name) for name in user)
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    traced = {**{name: value for name, value in bound.items() if name not in kwargs}, **kwargs}
    if not isinstance(shapes, Mapping):
        shapes = dict(zip(bound, shapes, strict=False))
    taken: dict[str, int] = {}
    for name, value in traced.items():
        for symbol, given, size in _named_sizes(value, shapes.get(name), values):
            if taken.setdefault(given, size) == size:  # one name is one size; it has been said of different ones
                yield symbol, given


def _named_sizes(value: Any, shapes: Any, metas: Iterator[Any]) -> Iterator[tuple[str, str, int]]:
    """(symbol, the user's name, the example's size)"""
    import torch
    import torch.utils._pytree as pytree

    if isinstance(value, torch.Tensor):
        meta = next(metas, None)
        pairs = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes or ())
        for axis, name in pairs:
            text = name if isinstance(name, str) else getattr(name, "__name__", None)
            size = meta.shape[axis] if isinstance(meta, torch.Tensor) else 0
            if text and isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                yield str(size.node.expr), text, value.shape[axis]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named_sizes(item, shapes.get(key) if isinstance(shapes, Mapping) else None, metas)
    elif isinstance(value, (list, tuple)):
        given = list(shapes) if isinstance(shapes, (list, tuple)) else [None] * len(value)
        for item, shape in zip(value, given, strict=False):
            yield from _named_sizes(item, shape, metas)
    else:
        for _ in pytree.tree_leaves(value):
            next(metas, None)
