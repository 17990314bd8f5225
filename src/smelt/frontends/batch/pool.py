"""Parts -> workers of this machine, until every part is finished or has a reason.

Input: a crew and the parts that are left. Output: what each part came to, told to a `Watch`. Invariant: a part is with
one worker at a time; a worker that dies or hangs is replaced, its parts are tried again one by one, and a part at which
two died alone has failed; workers that die before they have loaded the model end the run; a first Ctrl-C lets the parts
in hand finish, a second one drops them.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from smelt.base.errors import BatchError
from smelt.frontends.batch.crew import Crew, Event, Member
from smelt.frontends.batch.records import Part

_ATTEMPTS: Final = 2
_AHEAD: Final = 2  # parts that a worker holds: one in hand, one to read meanwhile
_POLL_S: Final = 0.2
_START_LIMIT_S: Final = 300.0  # a large model, a busy machine, a cold file system


class Watch(Protocol):
    """Who is told."""

    def ready(self) -> None: ...

    def stages(self, taken: dict[str, Any]) -> None: ...

    def done(self, part: int, rows: int, failed: int) -> None: ...

    def failed(self, part: int, reason: str) -> None: ...

    def note(self, text: str) -> None: ...


class Pool:
    """One run over some parts."""

    def __init__(self, crew: Crew, parts: Sequence[Part], watch: Watch, timeout_s: float) -> None:
        self.crew = crew
        self.parts = {part.index: part for part in parts}
        self.todo = deque(part.index for part in parts)
        self.watch = watch
        self.timeout_s = timeout_s
        self.members: list[Member] = []
        self.attempts: Counter[int] = Counter()
        self.suspects: set[int] = set()
        self.interrupts = 0
        self._idle_deaths = 0
        self._hung: set[Member] = set()  # the members themselves: the id() of one that is gone may be another's
        self._finishing: set[Member] = set()

    def run(self, workers: int) -> bool:
        """Make all parts; False when interrupted."""
        with self._interruptible():
            try:
                for _ in range(min(workers, max(1, len(self.todo)))):
                    self.members.append(self.crew.member())
                while self.members:
                    self._step()
            finally:
                for member in self.members:
                    member.drop()
                for member in self.members:
                    member.end()
        return self.interrupts == 0

    def _step(self) -> None:
        self._hand_out()
        try:
            event = self.crew.events.get(timeout=_POLL_S)
        except queue.Empty:
            self._look_for_hung()
            return
        if event.member in self.members:
            self._take(event)

    def _hand_out(self) -> None:
        """To those that hold least; none once interrupted."""
        if self.interrupts >= 2:
            raise KeyboardInterrupt
        for depth in range(_AHEAD):
            for member in self.members:
                if self.todo and not self.interrupts and len(member.held) == depth and self._may_have_more(member):
                    member.give(self.parts[self.todo.popleft()])
        for member in self.members:
            if not member.held and member not in self._finishing:
                self._finishing.add(member)
                member.finish()

    def _may_have_more(self, member: Member) -> bool:
        """A part that a worker died at is alone in the next one's hands, so that it is known which one it was."""
        together = [*member.held, self.todo[0]]
        alone = len(together) == 1 or not self.suspects.intersection(together)
        return alone and member not in self._finishing

    def _take(self, event: Event) -> None:
        told, member = event.told, event.member
        if told.kind == "ready":
            member.ready = True
            self._idle_deaths = 0
            self.watch.ready()
        elif told.kind == "progress":
            self.watch.stages(told.stages)
        elif told.kind == "done":
            member.held.remove(told.part)
            self.watch.done(told.part, told.rows, told.failed)
        elif told.kind == "failed":
            member.held.remove(told.part)
            self.watch.failed(told.part, told.text)
        elif told.kind == "fatal":
            raise event.error or BatchError("SM-BATCH-010", told.text)
        elif told.kind == "gone":
            self._gone(member)

    def _gone(self, member: Member) -> None:
        self.members.remove(member)
        how = member.end()
        if member in self._hung:
            how = f"did nothing for {self.timeout_s:g} s and was stopped"
        if not member.held or not member.ready:
            self.todo.extendleft(reversed(member.held))  # no part's fault
            if how:
                self._idle_deaths += 1
                if self._idle_deaths > _ATTEMPTS:
                    raise BatchError("SM-BATCH-010", f"workers do not start: a worker {how}")
            self._replace()
            return
        self.suspects.update(member.held)
        if len(member.held) == 1:
            self.attempts[member.held[0]] += 1
        again = [part for part in member.held if self.attempts[part] < _ATTEMPTS]
        self.todo.extendleft(reversed(again))
        for part in member.held:
            if part in again:
                self.watch.note(f"a worker {how}; its part {part} is tried again")
            else:
                self.watch.failed(part, f"a worker {how}, {_ATTEMPTS} times at this part")
        self._replace()

    def _replace(self) -> None:
        if self.todo and not self.interrupts:
            self.members.append(self.crew.member())

    def _look_for_hung(self) -> None:
        now = time.monotonic()
        for member in self.members:
            limit = self.timeout_s if member.ready else max(self.timeout_s, _START_LIMIT_S)
            if member.held and now - member.heard_at > limit and member not in self._hung:
                self._hung.add(member)
                member.drop()

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        """Ctrl-C asks, twice demands; SIGTERM demands. Only the main thread may set handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number: int, frame: object) -> None:
            del number, frame
            self.interrupts += 1
            if self.interrupts == 1:
                self.watch.note("stopping: parts in hand are finished; Ctrl-C again drops them")

        def demanded(number: int, frame: object) -> None:
            del number, frame
            self.interrupts = 2

        before: list[tuple[int, Any]] = [
            (signal.SIGINT, signal.signal(signal.SIGINT, asked)),
            (signal.SIGTERM, signal.signal(signal.SIGTERM, demanded)),
        ]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)
