"""Measuring two programs beside each other: in pairs, on one machine, in one run.

A machine is never quiet and never twice the same. What lasts is the ratio
of two runs that follow each other, and the median of several such ratios.
"""

import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

PAIRS = 7


@dataclass
class Run:
    """What one run cost."""

    wall: float
    cpu: float
    peak_mib: float


def run(command: list[str], out=subprocess.DEVNULL, stdin=subprocess.DEVNULL) -> Run:
    """Runs a command to its successful end."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdin=stdin, stdout=out)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"exit code {child.returncode}: {shlex.join(command)}")
    return Run(
        time.perf_counter() - begun,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def best(candidates: list, measure, rounds: int = 2):
    """The candidate with the lowest time in any of its rounds."""
    if len(candidates) == 1:
        return candidates[0]
    times = {}
    for _ in range(rounds):
        for index, candidate in enumerate(candidates):
            times.setdefault(index, []).append(measure(candidate))
    return candidates[min(times, key=lambda index: min(times[index]))]


@dataclass
class Ratio:
    """How many times more the peer took, pair by pair."""

    of_pairs: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.of_pairs)

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({min(self.of_pairs):.2f}–{max(self.of_pairs):.2f})"


def pairs(ours, peer, count: int = PAIRS) -> list[tuple]:
    """Results of both by turns; who goes first alternates."""
    results = []
    for index in range(count):
        if index % 2 == 0:
            mine = ours()
            results.append((mine, peer()))
        else:
            theirs = peer()
            results.append((ours(), theirs))
    return results


def ratio(results: list[tuple], of) -> Ratio:
    return Ratio([of(theirs) / max(of(mine), 1e-9) for mine, theirs in results])


def median_of(results: list, of) -> float:
    return statistics.median(of(result) for result in results)


class Bars:
    """Which bars were met. The bench fails if one was not."""

    def __init__(self) -> None:
        self.missed = []

    def at_least(self, what: str, found: float, bar: float) -> str:
        met = found >= bar
        if not met:
            self.missed.append(f"{what}: {found:.2f}, to be at least {bar}")
        return f"bar {bar}: {'met' if met else 'MISSED'}"

    def at_most(self, what: str, found: float, bar: float) -> str:
        met = found <= bar
        if not met:
            self.missed.append(f"{what}: {found:.2f}, to be at most {bar}")
        return f"bar {bar}: {'met' if met else 'MISSED'}"

    def finish(self) -> None:
        for missed in self.missed:
            print(f"missed: {missed}")
        sys.exit(1 if self.missed else 0)


def no_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
