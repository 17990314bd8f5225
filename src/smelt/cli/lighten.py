"""`smelt lighten` and `smelt unlighten`: a model without its weights, and back.

Input: a model. Output: a model of a few kilobytes that can be shared, or one with weights again. Invariant: the model
given is not overwritten.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smelt.cli import options as opt
from smelt.cli.output import reporting

MinBytes = Annotated[int, typer.Option("--min-bytes", min=1, help="Keep tensors smaller than this.")]
Original = Annotated[
    Path | None,
    typer.Option("--from", metavar="MODEL.onnx", help="Take the original's tensors; random ones without it."),
]


def register(app: typer.Typer) -> None:
    app.command("lighten")(lighten_command)
    app.command("unlighten")(unlighten_command)


def lighten_command(
    model: opt.ModelPath,
    output: opt.OutputModel,
    min_bytes: MinBytes = 1024,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Take the weights out of a model, so that it can be shared; `unlighten` puts some back."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.ir.light import lighten
        from smelt.ir.load import load_model
        from smelt.ir.save import save_model
        from smelt.report import counted, in_bytes

        opt.refuse_same_file(model, output)
        loaded = load_model(model)
        dropped = lighten(loaded, min_bytes)
        saved = save_model(loaded, output, min_bytes=1 << 40)  # one file: there is nothing large to map
        size = saved.model_path.stat().st_size
        out.lines(f"{counted(len(dropped), 'tensor')} taken away; {in_bytes(size)} are left")
        out.result(str(output))
        out.facts(output=str(output), tensors=[item.name for item in dropped], bytes=size)


def unlighten_command(
    model: opt.ModelPath,
    output: opt.OutputModel,
    original: Original = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    verbose: opt.Verbose = 0,
    quiet: opt.Quiet = False,
) -> None:
    """Put weights into a light model: the original's, or random ones of the same statistics."""
    with reporting(as_json, verbose, quiet) as out:
        from smelt.ir.light import unlighten
        from smelt.ir.load import load_model
        from smelt.ir.save import save_model
        from smelt.report import counted

        opt.refuse_same_file(model, output)
        if original is not None:
            opt.refuse_same_file(original, output)
        loaded = load_model(model)
        restored = unlighten(loaded, None if original is None else load_model(original), seed)
        save_model(loaded, output)
        kind = "random ones of the same statistics" if original is None else "the original's"
        out.lines(f"{counted(len(restored), 'tensor')} put back: {kind}")
        out.result(str(output))
        out.facts(output=str(output), tensors=[item.name for item in restored], random=original is None)
