"""A model as a session is asked for -> an artifact folder, or the reason for stock.

Input: a path or bytes, and how long to wait. Output: a `Found`. Invariant: nothing is raised; what compiles a model is
imported when there is something to compile, since most starts find an artifact.
"""

from __future__ import annotations

import time
from pathlib import Path

from smelt.base.config import Config
from smelt.base.errors import SmeltError
from smelt.frontends.session.found import BACKGROUND_LIMIT_S, Found, Wanted
from smelt.frontends.session.identity import digest_of
from smelt.frontends.session.store import Store


def artifact_for(model: Path | bytes, wanted: Wanted, config: Config | None = None) -> Found:
    """The artifact of a model, compiled now if need be."""
    started = time.monotonic()
    try:
        config = config or Config.from_env()
        store = Store(config)
        key = store.key(digest_of(model, store.known), wanted.options)
        found = store.find(key)
        if found is not None:
            return Found(found, key=key)
        failed = store.failure(key, wanted.limit_s or BACKGROUND_LIMIT_S)
        if failed is not None:
            return Found(None, failed)
        from smelt.frontends.session.compiling import compiled_now

        made = compiled_now(store, key, model, wanted)
        return Found(made.folder, made.reason, made.folder is not None, time.monotonic() - started, key)
    except SmeltError as error:
        return Found(None, f"{error.code}: {error.message}")
    except Exception as error:  # whatever it is, the program goes on with stock
        return Found(None, f"{type(error).__name__}: {error}")
