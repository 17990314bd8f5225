"""What a second thread could save at most: two sessions of one thread each, side by side, against one of two threads.

    python bench/apart.py mobilebert [--length 128] [--batch 1] [--rounds 5]

Sessions of one thread share nothing but the machine: no barrier, no line of the other core's cache. A run of one of two
threads cannot be better than half of theirs unless it reads less; how far it is from that is waiting, uneven tasks and
what one core fetches from the other. That a session is as fast beside another one as alone shows that memory and power
suffice for both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import smelt
from smelt.base import Config
from smelt.bench import zoo
from smelt.runtime import SessionSettings, session_for

Times = list[float]


def runs(run: Callable[[], object], seconds: float, core: int | None, times: Times) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before = time.perf_counter()
        run()
        times.append((time.perf_counter() - before) * 1e3)


def side_by_side(work: list[tuple[Callable[[], object], int, Times]], seconds: float) -> None:
    """Each on a thread that is pinned to a core of its own."""
    threads = [threading.Thread(target=runs, args=(run, seconds, core, times)) for run, core, times in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(chosen: argparse.Namespace) -> dict[str, Times]:
    path = zoo.export(chosen.model, Config.from_env())
    cores = sorted(os.sched_getaffinity(0))[:2]
    found: dict[str, Times] = {"alone": [], "beside another": [], "two threads": []}
    with smelt.compile(path, threads=1) as compiled:
        library = compiled.result.library
        assert library is not None

        def opened(threads: int) -> Callable[[], object]:
            session: Any = session_for(
                compiled.result.artifact.model_path, library.path, SessionSettings(threads=threads)
            )
            given = zoo.feeds(chosen.model, chosen.batch, chosen.length).values()
            feeds = dict(zip([one.name for one in session.get_inputs()], given, strict=True))
            return lambda: session.run(None, feeds)

        one, other, both = opened(1), opened(1), opened(2)
        for _ in range(chosen.rounds):
            side_by_side([(one, cores[0], found["alone"])], 1.0)
            pair = [(one, cores[0], found["beside another"]), (other, cores[-1], found["beside another"])]
            side_by_side(pair, 1.0)
            runs(both, 1.0, None, found["two threads"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    found = {name: statistics.median(times) for name, times in measure(parser.parse_args()).items()}
    for name, median in found.items():
        print(f"{name}: {median:.2f} ms")
    half = found["beside another"] / 2
    print(f"two threads take {found['two threads'] / half:.3f} of half of one beside another ({half:.2f} ms)")


if __name__ == "__main__":
    main()
