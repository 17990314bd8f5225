"""The zoo's models, small, under the same contract."""

from __future__ import annotations

import numpy as np
import pytest
from contract import Subject
from stress_models import SPECIAL, Feeds, planted

from smelt.base import Config
from smelt.bench import zoo

for package in ("torch", "transformers", "onnxscript"):
    pytest.importorskip(package)

SIZES = ((1, 2), (3, 7), (1, 37), (2, 65))


def inputs(name: str) -> list[Feeds]:
    found = [zoo.feeds(name, batch, length, "tiny", seed=length) for batch, length in SIZES]
    for feeds in found[1:]:
        if "attention_mask" in feeds:
            feeds["attention_mask"][-1, -1:] = 0
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", zoo.ZOO)
def test_the_contract_holds_on_a_model_of_the_zoo(name: str, tmp_path):
    config = Config.from_env().with_(cache_dir=tmp_path / "cache", log="quiet")
    subject = Subject(zoo.export(name, config, "tiny"), tmp_path, config, least=0.5)
    given = inputs(name)
    for feeds in given:
        subject.check(feeds)
        subject.check_threads(feeds)
    subject.check_callers(given, rounds=3)
    for place, feeds in enumerate(given[:2]):
        floats = {key: array for key, array in feeds.items() if array.dtype == np.float32}
        for value in SPECIAL.values() if floats else ():
            subject.check_special({**feeds, **planted(floats, value, place)})
