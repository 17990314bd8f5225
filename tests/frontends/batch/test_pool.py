"""Who gets which part when workers die, hang or never start: with workers that only pretend to work."""

from __future__ import annotations

import queue
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from smelt.base.errors import BatchError
from smelt.frontends.batch.crew import Event
from smelt.frontends.batch.pool import Pool
from smelt.frontends.batch.records import Part, Told

PARTS = [Part(index, 0, index, index + 1, 10 * index, 10) for index in range(6)]


class Pretender:
    """A worker that makes each part at once, but dies or falls silent at some."""

    def __init__(self, crew: Pretenders) -> None:
        self.crew, self.held, self.heard_at, self.ready = crew, list[int](), time.monotonic(), False
        self.how = ""
        if crew.stillborn:
            self._gone("ended with code 1: no such file")
        else:
            self._say(Told("ready"))

    def _say(self, told: Told) -> None:
        self.heard_at = time.monotonic()
        self.crew.events.put(Event(self, told))

    def _gone(self, how: str) -> None:
        self.how = how
        self._say(Told("gone"))

    def give(self, part: Part) -> None:
        self.held.append(part.index)
        self.crew.given[part.index] += 1
        self.crew.together.append(tuple(self.held))
        if self.how or part.index in self.crew.silent_at:
            return
        if part.index in self.crew.deadly and self.crew.given[part.index] <= self.crew.deadly[part.index]:
            self._gone("was killed (SIGKILL)")
        else:
            self._say(Told("done", part.index, rows=part.rows))

    def finish(self) -> None:
        if not self.how and not self.crew.silent_at.intersection(self.held):
            self._gone("")

    def drop(self) -> None:
        if not self.how:
            self._gone("was killed (SIGKILL)")

    def end(self) -> str:
        return self.how


@dataclass
class Pretenders:
    """`deadly`: how often a part kills its worker; `silent_at`: parts that a worker never ends."""

    deadly: dict[int, int] = field(default_factory=dict[int, int])
    silent_at: set[int] = field(default_factory=set[int])
    stillborn: bool = False
    events: queue.Queue[Event] = field(default_factory=lambda: queue.Queue[Event]())
    given: Counter[int] = field(default_factory=Counter[int])
    together: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    made: int = 0

    ids: set[int] = field(default_factory=set[int])

    def member(self) -> Any:
        """At the address of an earlier one, where the allocator gives one away."""
        made = [Pretender.__new__(Pretender) for _ in range(200)]
        chosen = next((one for one in made if id(one) in self.ids), made[0])
        self.ids.add(id(chosen))
        self.made += 1
        chosen.__init__(self)
        return chosen


class Listener:
    def __init__(self) -> None:
        self.made: Counter[int] = Counter()
        self.parts_failed: dict[int, str] = {}
        self.notes: list[str] = []

    def ready(self) -> None: ...

    def stages(self, taken: dict[str, Any]) -> None: ...

    def done(self, part: int, rows: int, failed: int) -> None:
        self.made[part] += 1

    def failed(self, part: int, reason: str) -> None:
        self.parts_failed[part] = reason

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(crew: Pretenders, workers: int = 2, timeout_s: float = 100.0) -> Listener:
    listener = Listener()
    assert Pool(crew, PARTS, listener, timeout_s).run(workers)  # type: ignore[arg-type]
    return listener


def test_every_part_is_made_once():
    heard = run(Pretenders())
    assert heard.made == Counter(range(6)) and not heard.parts_failed


def test_a_part_that_kills_twice_alone_has_failed_and_the_others_are_made():
    crew = Pretenders(deadly={2: 99})
    heard = run(crew)
    assert heard.made == Counter([0, 1, 3, 4, 5])
    assert "SIGKILL" in heard.parts_failed[2] and "2 times" in heard.parts_failed[2]
    assert 2 <= crew.given[2] <= 3  # once beside another part at most


def test_a_part_that_killed_once_is_tried_alone_and_made():
    crew = Pretenders(deadly={3: 1})
    heard = run(crew, workers=1)
    assert heard.made == Counter(range(6)) and not heard.parts_failed
    assert [held for held in crew.together if 3 in held][-1] == (3,) and "tried again" in heard.notes[0]


def test_a_silent_worker_is_stopped_and_replaced():
    crew = Pretenders(silent_at={4})
    heard = run(crew, timeout_s=0.05)
    assert heard.made == Counter([0, 1, 2, 3, 5])
    assert "did nothing for 0.05 s" in heard.parts_failed[4]


@pytest.mark.timeout(30)
def test_a_worker_at_the_address_of_a_stopped_one_is_another_worker():
    crew = Pretenders(silent_at={0, 1, 2, 3, 4, 5})
    heard = run(crew, workers=1, timeout_s=0.01)
    assert set(heard.parts_failed) == set(range(6)) and not heard.made


def test_workers_that_never_start_end_the_run():
    with pytest.raises(BatchError, match="workers do not start: a worker ended with code 1: no such file") as ended:
        run(Pretenders(stillborn=True))
    assert ended.value.code == "SM-BATCH-010"
