"""Odd sizes, special values, many threads: the numerics contract on whole models."""

from __future__ import annotations

import numpy as np
import pytest
from contract import Subject
from stress_models import MODELS, SPECIAL, StressModel, planted

from smelt.base import Config


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> StressModel:
    return MODELS[request.param]


@pytest.fixture(scope="module")
def subject(model: StressModel, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp(model.name)
    config = Config.from_env().with_(cache_dir=folder / "cache", log="quiet")
    return Subject(model.proto(), folder, config)


def test_odd_sizes_are_right(subject: Subject, model: StressModel):
    for place, size in enumerate(model.sizes):
        subject.check(model.feeds(size, place))


@pytest.mark.parametrize("special", SPECIAL)
def test_special_values_go_where_the_reference_sends_them(subject: Subject, model: StressModel, special: str):
    for place, size in enumerate(model.sizes[2:5]):
        subject.check_special(planted(model.feeds(size, place), SPECIAL[special], place))


def test_results_do_not_depend_on_the_number_of_threads(subject: Subject, model: StressModel):
    for place, size in enumerate(model.sizes):
        subject.check_threads(model.feeds(size, place))


def test_eight_callers_of_one_session_do_not_disturb_each_other(subject: Subject, model: StressModel):
    subject.check_callers([model.feeds(size, place) for place, size in enumerate(model.sizes)])


def test_nothing_masks_a_wrong_result(subject: Subject, model: StressModel, monkeypatch: pytest.MonkeyPatch):
    """The checks themselves can fail."""
    feeds = model.feeds(model.sizes[3])
    right = subject.run

    def wrong(given: dict[str, np.ndarray], threads: int = 2) -> list[np.ndarray]:
        found = [array.copy() for array in right(given, threads)]
        found[0].reshape(-1)[-1] += 1e-2 * threads
        return found

    monkeypatch.setattr(subject, "run", wrong)
    for check in (subject.check, subject.check_special, subject.check_threads):
        with pytest.raises(AssertionError):
            check(feeds)
