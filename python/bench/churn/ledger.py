"""What the logs of a run say: which samples counted in which step, and when."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLES = 60000  # of an epoch


@dataclass
class Row:
    """A step that a worker has completed."""

    at: float
    step: int
    planned: int  # samples that the step should have at all workers together
    own: list[int]  # places of the samples of this worker
    seen: list[float]  # what its Tally has seen, if it has one


@dataclass
class Life:
    """The log of a process of a worker."""

    rows: list[Row] = field(default_factory=list)
    # Places that it had begun when it was killed, with their step: they may have counted.
    unknown: list[tuple[int, int]] = field(default_factory=list)
    result: dict[str, Any] | None = None


def read(log: Path) -> Life:
    """Reads a log. Its last line may be broken."""
    life = Life()
    begun: list[tuple[int, int]] = []
    for line in log.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        at, kind, *rest = line.split(maxsplit=2)
        if kind == "begin":
            step, *places = map(int, rest[0].split())
            begun += [(step, place) for place in places]
        elif kind == "count":
            words = rest[0].split()
            own = [place for _, place in begun]
            life.rows.append(Row(float(at), int(words[0]), int(words[1]), own, [float(w) for w in words[2:]]))
            begun = []
        elif kind == "drop":
            begun = []
        elif kind == "test":
            life.result = json.loads(rest[0])
    life.unknown = begun
    return life


class Ledger:
    """The logs of all workers of a run.

    lost        samples of complete steps that did not count
    repeated    samples that counted more than once
    """

    def __init__(self, logs: list[Path], end: float) -> None:
        lives = [read(log) for log in logs]
        self.result = next((life.result for life in lives if life.result), None)
        self._rows = sorted((row for life in lives for row in life.rows if row.at <= end), key=lambda row: row.at)
        planned = {row.step: row.planned for row in self._rows}
        # A worker that was killed may have taken part in the step that it had begun; others may have told of a step later.
        unknown = {(step, place) for life in lives for step, place in life.unknown if step in planned}
        unknown |= {(row.step, p) for life in lives for row in life.rows if row.at > end and row.step in planned for p in row.own}
        exact = self._exact(planned, unknown)
        places: set[int] = set()
        self.repeated = self.lost = 0
        self._fresh: list[tuple[float, int]] = []  # the time, and samples that had not counted before
        once: set[tuple[int, int]] = set()
        for row in self._rows:
            fresh = set(row.own) - places
            places |= fresh
            own = {(row.step, place) for place in row.own}
            self._fresh.append((row.at, len(fresh)))
            # Some copy of a sample that two workers computed is not in the sums of an exact step.
            self.repeated += len(own - once) - len(fresh) if row.step in exact else len(row.own) - len(fresh)
            once |= own
        wanted = sum(planned.values())
        if planned:
            wanted += statistics.mode(planned.values()) * (max(planned) + 1 - min(planned) - len(planned))  # steps without a line
        self.lost = max(0, wanted - len(places | {place for _, place in unknown}))
        self.lost += sum(planned[step] for step in {row.step for row in self._rows if row.seen} - exact)

    def _exact(self, planned: dict[int, int], unknown: set[tuple[int, int]]) -> set[int]:
        """Steps of which a Tally has seen each sample once."""
        of: dict[int, set[int]] = {}
        for step, place in unknown:
            of.setdefault(step, set()).add(place)
        for row in self._rows:
            of.setdefault(row.step, set()).update(row.own)
        exact = set()
        for row in self._rows:
            places = of[row.step]
            if row.seen and len(places) == planned[row.step]:
                number, mean = row.seen
                wanted = statistics.fmean(p % SAMPLES for p in places) / SAMPLES
                if abs(number - 1) < 1e-5 and abs(mean - wanted) < 1e-5:
                    exact.add(row.step)
        return exact

    def progress(self) -> list[float]:
        """The times of steps that no worker had reached before."""
        times, highest = [], -1
        for row in self._rows:
            if row.step > highest:
                highest = row.step
                times.append(row.at)
        return times

    def samples(self, begin: float, end: float) -> int:
        """The samples that counted first in a time."""
        return sum(n for at, n in self._fresh if begin < at <= end)


_SETTLED = 3  # new steps after which an event is over


def gap(progress: list[float], event: float, effect: float, until: float) -> float | None:
    """The longest time without a new step, in ms, from an event to the first steps after its effect; None if it did not end."""
    after = [t for t in progress if effect < t <= until][:_SETTLED]
    times = [t for t in progress if t <= event][-1:] + [t for t in progress if event < t <= effect] + after
    gaps = [b - a for a, b in zip(times, times[1:])]
    if not gaps or (len(after) < _SETTLED and until - times[-1] > max(gaps)):
        return None
    return 1e3 * max(gaps)
