"""A library with clocks, from the source of a compilation.

Input: what was generated, and the library that was built of it. Output: a second library with the same kernels.
Invariant: kernels are not compiled again; the artifact's own library has no clocks in it.
"""

from __future__ import annotations

from dataclasses import replace

from smelt.base.config import Config
from smelt.base.target import find_target
from smelt.codegen import with_clocks
from smelt.ir.backend import Generated
from smelt.ir.records import Library
from smelt.toolchain import Cache, build, find_compiler, hash_headers


def clocked_library(generated: Generated, library: Library, config: Config) -> Library:
    """The same levels with clocks, also those that this machine does not run: the source's table names them all."""
    targets = tuple(map(find_target, library.targets))
    source = replace(with_clocks(generated.source), include_hash=hash_headers(generated.source.include_dirs))
    return build(source, targets, find_compiler(config), Cache(config.cache_dir), config)
