"""One process that compiles kernels: a JSON job per line in, a JSON answer per line out.

Input: jobs of `binaries.py`. Output: files `<key>.bin`, `.json`, `.ttir`, `.asm` in the job's folder. Invariant: needs
triton and nothing else; a job ends with an answer, whatever it raises; a file appears whole or not at all.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

REGISTER_COUNT = 0x2F  # the attribute of a cubin's .nv.info


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"key": job["key"], "error": "", **_compile(job)}
        except Exception as error:
            answer = {"key": job["key"], "error": _told(error)}
        print(json.dumps(answer), flush=True)


def _told(error: BaseException) -> str:
    """What happened, with the place in the module's text where Triton knows it: the innermost of nested calls."""
    innermost: Any = None
    one: BaseException | None = error
    while one is not None:
        innermost = (
            one if hasattr(one, "error_message") and hasattr(getattr(one, "node", None), "lineno") else innermost
        )
        one = one.__cause__
    if innermost is None:
        return f"{type(error).__name__}: {error}"
    named = re.match(r"def (\w+)", innermost.src or "")
    line = (innermost.src or "").split("\n")[innermost.node.lineno - 1 : innermost.node.lineno]
    said = f"{innermost.error_message or type(innermost).__name__}: {''.join(line).strip()}"
    return f"at line {innermost.node.lineno} of {named[1] if named else 'the kernel'}: {said}"


def _compile(job: dict[str, Any]) -> dict[str, Any]:
    triton, compiler = _named("triton"), _named("triton.compiler")
    constants = job["constants"]
    function = getattr(_module(job["module"]), job["function"])
    every = job["signature"] | dict.fromkeys(constants, "constexpr")
    given = list(job["signature"])
    hints = {(function.arg_names.index(given[place]),): [["tt.divisibility", 16]] for place in job["divisible"]}
    source = compiler.ASTSource(
        fn=function, signature={name: every[name] for name in function.arg_names},
        constexprs={name: _constant(value) for name, value in constants.items()}, attrs=hints,
    )  # fmt: skip
    target = _named("triton.backends.compiler").GPUTarget(*job["target"])
    options = {"num_warps": job["warps"], "enable_fp_fusion": False}
    options |= {"num_stages": job["stages"]} if job["stages"] else {}
    made: Any = triton.compile(source, target=target, options=options)
    image: bytes = made.asm["cubin" if target.backend == "cuda" else "hsaco"]
    text: str = made.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    facts: dict[str, int] = {
        "shared": made.metadata.shared,
        "threads": made.metadata.num_warps * target.warp_size,
        "scratch": made.metadata.global_scratch_size + made.metadata.profile_scratch_size,
        "registers": _registers(image, text, target.backend),
    }
    stem = Path(job["folder"]) / job["key"]
    _put(stem.with_suffix(".ttir"), str(made.asm["ttir"]).encode())
    _put(stem.with_suffix(".asm"), str(text).encode())
    _put(stem.with_suffix(".bin"), bytes(image))
    _put(stem.with_suffix(".json"), json.dumps(facts).encode())  # last: it says that the others are there
    return facts


def _constant(value: Any) -> Any:
    """A type of Triton's comes as its name."""
    if isinstance(value, str) and value.startswith("tl."):
        return getattr(_named("triton.language"), value[3:])
    return value


def _named(module: str) -> Any:
    """A part of Triton, which need not be there when this file is looked at."""
    return importlib.import_module(module)


def _module(path: str) -> Any:
    name = Path(path).stem
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        found.loader.exec_module(module)
    return sys.modules[name]


def _registers(image: bytes, text: str, kind: str) -> int:
    """Of a thread; 0 where the binary does not say."""
    if kind != "cuda":
        return max((int(found) for found in re.findall(r"\.vgpr_count:\s+(\d+)", text)), default=0)
    table, each, count, names = (*struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HHH", image, 58))
    sections = [struct.unpack_from("<IIQQQQ", image, table + place * each) for place in range(count)]
    strings = sections[names][4]
    named = [(image[strings + s[0] : image.index(b"\0", strings + s[0])], s[4], s[5]) for s in sections]
    return max((_told_registers(image[at : at + size]) for name, at, size in named if name == b".nv.info"), default=0)


def _told_registers(info: bytes) -> int:
    """Records of a format, an attribute and a size; or of four bytes."""
    found, at = 0, 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4 and attribute == REGISTER_COUNT:
            found = max(found, struct.unpack_from("<I", info, at + 8)[0])
        at += 4 + (size if form == 4 else 0)
    return found


def _put(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


if __name__ == "__main__":
    main()
