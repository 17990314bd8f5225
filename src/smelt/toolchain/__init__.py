"""Source -> Library: compiler discovery, flags, parallel compilation, the content-addressed cache."""

from smelt.base.cache import Cache, CacheEntry, CacheUsage, file_digest, usable_root
from smelt.toolchain.bounds import bounds_environment, sanitizer_is_loaded
from smelt.toolchain.build import build, can_build, count_jobs, is_built, library_key
from smelt.toolchain.compiler import Candidate, Compiler, find_compiler, list_compilers
from smelt.toolchain.early import EarlyObjects
from smelt.toolchain.elf import Symbols, read_symbols
from smelt.toolchain.jobs import hash_headers, prebuild_all, warm
from smelt.toolchain.prebuilt import FOLDER as PREBUILT

__all__ = [
    "PREBUILT",
    "Cache",
    "CacheEntry",
    "CacheUsage",
    "Candidate",
    "Compiler",
    "EarlyObjects",
    "Symbols",
    "bounds_environment",
    "build",
    "can_build",
    "count_jobs",
    "file_digest",
    "find_compiler",
    "hash_headers",
    "is_built",
    "library_key",
    "list_compilers",
    "prebuild_all",
    "read_symbols",
    "sanitizer_is_loaded",
    "usable_root",
    "warm",
]
