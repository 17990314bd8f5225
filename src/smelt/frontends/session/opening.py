"""A model -> what its session is constructed over, looked up or compiled, and checked.

Input: the model of a session, and how long to wait. Output: an `Opening`, or the reason for stock. Invariant: the
library's digest was checked just now; what can be told again from the files alone is noted for the next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smelt.base.config import Config
from smelt.base.errors import SmeltError
from smelt.base.log import logger
from smelt.frontends.session.compiled import artifact_for
from smelt.frontends.session.found import Wanted
from smelt.frontends.session.identity import hashed_files
from smelt.frontends.session.known import Opening, remember
from smelt.frontends.session.store import Store
from smelt.runtime import MANIFEST, open_artifact, ort_version


def opening_of(model: Any, name: str, wanted: Wanted) -> Opening | str:
    folder = _folder(model)
    if folder is not None and (folder / MANIFEST).is_file():
        return _checked(folder, freezes=False)
    if folder is not None and not Path(model).is_file():
        return "it is no file"
    found = artifact_for(model if isinstance(model, bytes) else Path(model), wanted)
    if found.compiled:
        logger("session").info("%s was compiled in %.1f s", name, found.seconds)
    if found.folder is None:
        return found.reason
    opening = _checked(found.folder)
    if isinstance(opening, Opening) and not isinstance(model, bytes) and not wanted.options:
        path = Path(model)
        files = hashed_files(path, Store(Config.from_env()).known)
        if files:
            remember(str(path), ort_version(), found.key, opening, files)
    return opening


def _folder(model: Any) -> Path | None:
    """Where an artifact would lie that is given in place of a model."""
    if isinstance(model, bytes):
        return None
    path = Path(model)
    return path if path.is_dir() else path.parent


def _checked(folder: Path, *, freezes: bool = True) -> Opening | str:
    """`freezes`: calls may feed initializers, which the artifact of a model holds as constants."""
    try:
        opened = open_artifact(folder)
    except (SmeltError, OSError) as error:
        return f"its artifact does not load: {error}"
    frozen = tuple(opened.manifest.get("frozen") or ()) if freezes else ()
    return Opening(str(opened.model), str(opened.library or ""), frozen)
