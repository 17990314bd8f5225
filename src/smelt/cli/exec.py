"""`smelt exec -- PROGRAM ...`: run a program whose ONNX Runtime sessions use compiled models.

Input: a command. Output: that command's own, and its exit code. Invariant: nothing of the program is changed; what
cannot be compiled runs on stock.
"""

from __future__ import annotations

from typing import Annotated

import typer

Background = Annotated[bool, typer.Option("--background", help="Start on stock; later sessions use what was compiled.")]
Limit = Annotated[float, typer.Option("--limit", metavar="SECONDS", help="How long a session waits for its model.")]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="PATTERN", help="Models that stay with stock.")]
Command = Annotated[list[str], typer.Argument(metavar="-- PROGRAM [ARGUMENTS]", help="The program, as it is started.")]


def register(app: typer.Typer) -> None:
    app.command("exec", context_settings={"ignore_unknown_options": True})(exec_command)


def exec_command(command: Command, background: Background = False, limit: Limit = 30.0, skip: Skip = None) -> None:
    """Run a program with every ONNX Runtime session over a compiled model."""
    import os
    import shutil
    from pathlib import Path

    from smelt.base.config import child_environment
    from smelt.cli.output import reporting
    from smelt.frontends import session

    with reporting():
        earlier = child_environment({}).get("PYTHONPATH")
        path = [str(Path(session.__file__).parent / "site"), *([earlier] if earlier else [])]
        environment = child_environment(
            {
                "PYTHONPATH": os.pathsep.join(path),
                "SMELT_HOOK": "background" if background else "on",
                "SMELT_HOOK_LIMIT": f"{limit:g}",
                "SMELT_HOOK_SKIP": os.pathsep.join(skip or ()),
            }
        )
        if shutil.which(command[0]) is None:
            meant = f": `smelt exec -- python {' '.join(command)}`?" if Path(command[0]).is_file() else ""
            raise FileNotFoundError(f"there is no program {command[0]!r} to run{meant}")
        os.execvpe(command[0], command, environment)  # noqa: S606  the user's own command
