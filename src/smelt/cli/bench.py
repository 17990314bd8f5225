"""`smelt bench`: time a model against everything else that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smelt.cli.bench_llm import is_language_model, run_llm, run_quality
from smelt.cli.options import Inputs, Json, Quiet, Seed, Shapes, Tune, Verbose, parse_files, parse_names, parse_shapes
from smelt.cli.output import reporting

if TYPE_CHECKING:
    from smelt.base.config import Config
    from smelt.bench import Case, Ledger, Outcome, Plan

_EXAMPLES = """\b
Examples:
  smelt bench model.onnx --shapes input_ids:1,128
  smelt bench --model distilbert-base-uncased --seq 37,128,512 --batch 1,8 --peers all
  smelt bench --model gpt2 --decode --seq 512        (one token after 512: tokens per second)
  smelt bench --llm GENAI_FOLDER --seq 128,512 --threads 1,2
  smelt bench --model qwen2-0.5b --seq 128,512         (random weights)
  smelt bench --llm HF_FOLDER --quality text.md        (perplexity and KL divergence)
  smelt bench --suite micro --threads 1,2 --markdown
  smelt bench --suite igniter --plot out.html
  smelt bench model.onnx --peers ort,ort     (A against A: no difference)
"""


NAMES = (
    "ort, smelt, ort-fp32, smelt-fp32 (of quantized models), ort-fused, openvino, openvino-bf16, inductor-bf16, "
    "eager, inductor, inductor-freezing, inductor-max, or all; "
    "the first is the baseline."
)
ModelFile = Annotated[Path | None, typer.Argument(help="An ONNX model.", show_default=False, metavar="MODEL.onnx")]
Name = Annotated[str, typer.Option("--model", metavar="NAME", help="A known model, built offline with random weights.")]
Suite = Annotated[
    str, typer.Option("--suite", metavar="micro|gemm|models|int8|int4|bf16|igniter|decode", help="A whole suite.")
]
Llm = Annotated[
    Path | None,
    typer.Option("--llm", metavar="FOLDER", help="A language model: of onnxruntime-genai or Hugging Face, or a GGUF."),
]
Quality = Annotated[
    Path | None,
    typer.Option("--quality", metavar="TEXT", help="With --llm HF_FOLDER: how near float32 compiled folders stay."),
]
Peers = Annotated[str, typer.Option("--peers", metavar="NAMES", help=NAMES)]
ThreadCounts = Annotated[str, typer.Option("--threads", metavar="COUNTS", help="Numbers of threads, e.g. 1,2.")]
Batches = Annotated[str, typer.Option("--batch", metavar="SIZES", help="Batches of known models, e.g. 1,8.")]
Lengths = Annotated[
    str, typer.Option("--seq", metavar="TOKENS", help="Tokens of known models, e.g. 37,512: one artifact for all.")
]
Decode = Annotated[bool, typer.Option("--decode", help="One token after --seq others, with keys and values kept.")]
Scale = Annotated[str, typer.Option("--scale", metavar="full|small|tiny", help="Size of --model's configuration.")]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Each times every peer; a verdict needs eight.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.001, help="Seconds of one peer's turn in a round.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write a plot: .html, or .png.")]
Resume = Annotated[
    Path | None, typer.Option("--resume", metavar="FILE.json", help="Keep results there, and go on where they end.")
]


def register(app: typer.Typer) -> None:
    app.command("bench", epilog=_EXAMPLES)(bench)


def bench(
    context: typer.Context,
    model: ModelFile = None,
    name: Name = "",
    suite: Suite = "",
    llm: Llm = None,
    quality: Quality = None,
    peers: Peers = "ort,smelt",
    threads: ThreadCounts = "",
    batch: Batches = "1",
    seq: Lengths = "128",
    decode: Decode = False,
    scale: Scale = "full",
    rounds: Rounds = 15,
    seconds: Seconds = 0.25,
    shapes: Shapes = None,
    inputs: Inputs = None,
    seed: Seed = 0,
    tune: Tune = False,
    as_json: Json = False,
    as_csv: Csv = False,
    as_markdown: Markdown = False,
    plot: Plot = None,
    resume: Resume = None,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Time a model in interleaved rounds against stock ONNX Runtime and other peers.

    Peers that are not installed, or cannot run the model, are listed with the reason.
    """
    with reporting(as_json, verbose, quiet) as output:
        from smelt.base.config import Config
        from smelt.base.progress import open_progress
        from smelt.bench import Options, Pace, Plan, as_facts, find_peers, parse_threads, run_suite, write_plot
        from smelt.bench.plot import check_plot

        if plot is not None:
            check_plot(plot)
        _check_choice(model, name, suite, llm)
        if llm is not None or is_language_model(name):
            counts, lengths = parse_threads(threads), _lengths(seq)
            form = "json" if as_json else "markdown" if as_markdown else ""
            if quality is not None:
                run_quality(llm, quality, output, form)
                return
            run_llm(llm, name, lengths, counts, rounds, plot, output, form)
            return
        _check_sizes(context, model)
        config = Config.from_env()
        config = config.with_(log="quiet") if quiet else config
        plan = Plan(find_peers(parse_names(peers)), parse_threads(threads), Pace(rounds, seconds), Options(tune=tune))
        if model is None:
            cases = _known_cases(config, name, suite, batch, seq, scale, decode)
        else:
            cases = [_file_case(model, shapes, inputs, seed)]
        with open_progress(config) as progress:
            outcome = run_suite(cases, plan, config, progress, _ledger(resume, plan))
        output.facts(**as_facts(outcome))
        if not as_json:
            _show(outcome, config, as_csv, as_markdown)
        if plot is not None:
            write_plot(outcome, plot)


def _check_choice(model: Path | None, name: str, suite: str, llm: Path | None) -> None:
    from smelt.base.errors import ConfigError

    if sum((model is not None, bool(name), bool(suite), llm is not None)) != 1:
        raise ConfigError(
            "SM-CONFIG-005", "give one of a model file, --model, --suite and --llm", hint="See `smelt bench --help`."
        )


def _lengths(text: str) -> list[int]:
    from smelt.bench import parse_sizes

    return [size.length for size in parse_sizes("1", text)]


def _check_sizes(context: typer.Context, model: Path | None) -> None:
    """An option that says nothing about what is timed is a mistake, and a figure for another size would be one too."""
    from smelt.base.errors import ConfigError

    known = {"batch": "--batch", "seq": "--seq", "scale": "--scale", "decode": "--decode"}
    file = {"shapes": "--shapes", "inputs": "--input"}
    options = known if model is not None else file
    given = [text for name, text in options.items() if _was_given(context, name)]
    if not given:
        return
    what, instead = (
        ("a model file", "The sizes of a file's inputs are given by --shapes, e.g. --shapes x:1,128.")
        if model is not None
        else ("known models and suites", "The sizes of known models are given by --batch and --seq.")
    )
    raise ConfigError("SM-CONFIG-005", f"{' and '.join(given)} cannot be used with {what}", hint=instead)


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _ledger(path: Path | None, plan: Plan) -> Ledger | None:
    from smelt.bench import Ledger, dependencies, describe_machine

    return None if path is None else Ledger(path, dependencies(plan, describe_machine()))


def _known_cases(config: Config, name: str, suite: str, batch: str, seq: str, scale: str, decode: bool) -> list[Case]:
    from smelt.bench import find_scale, parse_sizes, suite_cases, zoo_case

    sizes = parse_sizes(batch, seq)
    if name:
        chosen = f"{name.removesuffix('-decode')}-decode" if decode else name
        return [zoo_case(chosen, config, size, find_scale(scale)) for size in sizes]
    return suite_cases(suite, config, sizes, find_scale(scale))


def _file_case(path: Path, shapes: list[str] | None, inputs: list[str] | None, seed: int) -> Case:
    from smelt.bench import file_case
    from smelt.cli.feeds import feed_attempts, first_that_runs
    from smelt.ir.load import load_model
    from smelt.runtime import run_once, session_for

    attempts = feed_attempts(load_model(path), parse_shapes(shapes), parse_files(inputs), seed)
    session = session_for(path)
    feeds, _ = first_that_runs(attempts, lambda given: run_once(session, given))
    return file_case(path, feeds)


def _show(outcome: Outcome, config: Config, as_csv: bool, as_markdown: bool) -> None:
    from smelt.bench import print_table, to_csv, to_markdown

    if as_csv or as_markdown:
        typer.echo(to_csv(outcome) if as_csv else to_markdown(outcome), nl=False)
        return
    print_table(outcome, color=config.color)
