"""One struct per launcher: the records of Python against what the compiler makes of the headers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests import host_compiler

import smelt
from smelt.codegen.c.tasks import FUNCTION, GEMM, HEAD, TASKS, TaskStruct

INCLUDE = Path(smelt.__file__).parent / "codegen" / "c" / "include"


def compiled(folder: Path, task: TaskStruct, fields: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A program that is right if the struct begins with a head and has these fields alone, but for padding."""
    sizes = " + ".join(f"sizeof t.{field}" for field in fields)
    text = f"""#define SMELT_LEVEL probe
#define SMELT_VL 16
#include <smelt/{task.header}>
static {task.name} t;
int main(void) {{
  return sizeof t - ({sizes}) <= 8 && (char *)&t.head == (char *)&t && (char *)&t.env == (char *)&t.head.env ? 0 : 1;
}}
"""
    (folder / "probe.c").write_text(text)
    command = [*host_compiler.command(), "-std=gnu11", "-w", f"-I{INCLUDE}", "probe.c", "-o", "probe"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return built if built.returncode else subprocess.run(["./probe"], cwd=folder, text=True, check=False)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_record_has_the_fields_of_the_struct(task: TaskStruct, tmp_path: Path) -> None:
    done = compiled(tmp_path, task, (*HEAD, *task.fields))
    assert done.returncode == 0, done.stderr
    assert compiled(tmp_path, task, (*HEAD, *task.fields[:-1])).returncode != 0
    assert compiled(tmp_path, task, (*HEAD, *task.fields, "no_such_field")).returncode != 0


def test_a_launch_fills_known_fields_alone() -> None:
    assert FUNCTION.declared(3, f="factors3") == (
        "smelt_task task3 = {.env = env, .b = buffers3, .s = sizes3, .work = &work, .f = factors3};"
    )
    assert re.match(r"smelt_gemm_task \*t = p;", GEMM.local)
    with pytest.raises(AssertionError, match="smelt_gemm_task has no"):
        GEMM.declared(0, span="1")
