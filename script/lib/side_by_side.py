#!/usr/bin/env python3
"""Runs ignored tests side by side, each in a process of its own, whatever file it is in.

    script/lib/side_by_side.py [--jobs N] [--bins] [--test PATTERN]… [--whole PATTERN]…
                               [--alone FILE | --beside FILE] [--share DIR] [--some FILE] [--again N] [--times FILE]

cargo runs the files of tests one after the other, however little of the machine one of
them uses: here at most N tests run at a time, of all files. PATTERN is a file's name
without `.rs`, maybe with `*`. The tests of a file named by --whole that are run stay in
one process, one after the other, since they share what they start.

A FILE of patterns such as `cluster_kills::*`, one a line, names tests that disturb all
others. With --alone those are run, one after the other; with --beside all but those, and
they find DISKLET_TEST_BESIDE in their environment. Several runs with one --share, an empty
directory, each beside a cluster of its own, divide the former among them: each takes the
next that nobody has taken, and one with --beside does so when it has done the latter.

--some names groups of tests of which each shows another thing that goes wrong: a number and
patterns a line, `2 cluster_mishaps::* cluster_walls::*`. Of each group so many are run as
the number says, which the commit chooses; the others are named at the end.

--times has the times of earlier runs, and gets those of this one: the longest tests begin
first, so that none of them is last. What fails is shown with all that it has said. With
--again, up to N that failed beside others are run once more when all others are done: what
passes then depends on how busy the machine is, and is named as unsteady at the end. More
than N are too many to be chance, and none of them is tried again.
The last line is as cargo's: `test result: ok. N passed; N failed; …`.
Whoever ends this ends the tests that run: none of them is left behind.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

Test = collections.namedtuple("Test", "file names directory program")
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--bins", action="store_true", help="tests beside the code of programs, too")
    parser.add_argument("--test", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--whole", action="append", default=[], metavar="PATTERN")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--alone", metavar="FILE")
    which.add_argument("--beside", metavar="FILE")
    parser.add_argument("--share", metavar="DIR")
    parser.add_argument("--some", metavar="FILE")
    parser.add_argument("--again", type=int, default=0, metavar="N")
    parser.add_argument("--times", metavar="FILE")
    return parser.parse_args()


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def programs(options):
    """Builds them; yields each file's name, its crate's directory and its program."""
    cargo = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    cargo += ["--bins"] if options.bins else []
    for pattern in options.test:
        cargo += ["--test", pattern]
    built = subprocess.run(cargo, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["executable"] or not message["profile"]["test"]:
            continue
        yield message["target"]["name"], os.path.dirname(message["manifest_path"]), message["executable"]


def tests(options):
    for file, directory, program in programs(options):
        command = [program, "--ignored", "--list", "--format=terse"]
        listed = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in listed.splitlines():
            if line.endswith(": test"):
                yield Test(file, (line.removesuffix(": test"),), directory, program)


def joined(found, patterns):
    """The same, with those of whole files as one."""
    wholes = {}
    for test in found:
        whole = matches(test.file, patterns)
        wholes.setdefault(test.file if whole else key(test), []).append(test)
    return [group[0]._replace(names=sum((test.names for test in group), ())) for group in wholes.values()]


def lines_of(file):
    with open(file, encoding="utf-8") as lines:
        bare = [line.split("#")[0].strip() for line in lines]
    return [line for line in bare if line]


def demand_each(patterns, found, file):
    for pattern in patterns:
        if not any(matches(key(test), [pattern]) for test in found):
            sys.exit(f"{file}: there is no test {pattern}")


def left_out(file, found):
    """Those that the commit has not chosen."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    rank = lambda test: hashlib.sha256(f"{commit} {key(test)}".encode()).digest()
    left = []
    for line in lines_of(file):
        number, *patterns = line.split()
        demand_each(patterns, found, file)
        group = sorted((test for test in found if matches(key(test), patterns)), key=rank)
        left += group[int(number):]
    return left


def chosen(options):
    """Those that run beside each other, those that run alone, and those that do not run."""
    found = list(tests(options))
    left = left_out(options.some, found) if options.some else []
    beside, alone = divided(options, found)
    wanted = lambda todo: joined([test for test in todo if test not in left], options.whole)
    return wanted(beside), wanted(alone), [test for test in beside + alone if test in left]


def divided(options, found):
    if not (options.alone or options.beside):
        return found, []
    patterns = lines_of(options.alone or options.beside)
    demand_each(patterns, found, options.alone or options.beside)
    alone = [test for test in found if matches(key(test), patterns)]
    if options.alone:
        return [], alone
    return [test for test in found if test not in alone], alone if options.share else []


def is_mine(test, share):
    """Whether no other run has taken it."""
    if not share:
        return True
    try:
        os.close(os.open(os.path.join(share, key(test)), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Running:
    """The tests that run; once somebody wants this to end, no other begins."""

    def __init__(self):
        self.lock = threading.RLock()
        self.programs = set()
        self.ending = False

    def begin(self, *command, **options):
        with self.lock:
            if self.ending:
                return None
            program = subprocess.Popen(*command, **options)
            self.programs.add(program)
            return program

    def ended(self, program):
        with self.lock:
            self.programs.discard(program)

    def end_all(self, number, _frame):
        with self.lock:
            self.ending = True
            for program in self.programs:
                program.terminate()
        # The threads that wait for them are not waited for.
        os._exit(128 + number)


RUNNING = Running()


def run(test, environment):
    """Whether it has passed, how many passed and failed, in how many seconds, and what it said."""
    command = [test.program, "--ignored", "--test-threads=1", "--exact", *test.names]
    begun = time.monotonic()
    program = RUNNING.begin(
        command, cwd=test.directory, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    if not program:
        return 0, 1, 0, "not begun"
    said, _ = program.communicate()
    RUNNING.ended(program)
    seconds = time.monotonic() - begun
    counts = RESULT.search(said)
    passed, failed = (int(counts[1]), int(counts[2])) if counts else (0, 1)
    # Whoever ends without a word, or finds no test, has not passed.
    if program.returncode != 0 or passed == 0:
        failed = max(failed, 1)
    return passed, failed, seconds, said


def key(test):
    return f"{test.file}::{test.names[0] if len(test.names) == 1 else '*'}"


def earlier_times(file):
    try:
        with open(file, encoding="utf-8") as times:
            return json.load(times)
    except (OSError, ValueError, TypeError):
        return {}


def keep_times(file, times):
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file + ".new", "w", encoding="utf-8") as new:
        json.dump(times, new, indent=0, sort_keys=True)
    os.replace(file + ".new", file)


def tell(test, failed, seconds, said):
    print(f"test {key(test)} ... {'FAILED' if failed else 'ok'} {seconds:.1f} s", flush=True)
    # What tests tell in any case is indented; the first of it stands behind the test's name.
    said = re.sub(r"^test \S+ \.\.\. (?=  )", "", said, flags=re.MULTILINE)
    lines = said.splitlines() if failed else [line for line in said.splitlines() if re.match(r"  \S", line)]
    # The counts of one test are none of ours.
    print(*("    " + line for line in lines), sep="\n", end="\n" if lines else "", flush=True)


class Tally:
    """What has become of the tests so far."""

    def __init__(self, times):
        self.times = times
        self.passed = self.failed = 0
        # Which have failed, with how many passed and failed among them.
        self.failures = {}
        self.unsteady = []

    def longest_first(self, todo):
        # One that nobody has timed may be the longest.
        return sorted(todo, key=lambda test: -self.times.get(key(test), float("inf")))

    def add(self, test, result):
        good, bad, seconds, said = result
        self.passed, self.failed = self.passed + good, self.failed + bad
        self.times[key(test)] = round(seconds, 1)
        tell(test, bad, seconds, said)
        if bad:
            self.failures[test] = good, bad

    def add_again(self, test, result):
        """Counts what has failed before by how it is now."""
        if result[1] == 0:
            good, bad = self.failures.pop(test)
            self.passed, self.failed = self.passed - good, self.failed - bad
            self.unsteady.append(test)
            self.add(test, result)
        else:
            tell(test, *result[1:])


def run_beside(todo, options, tally):
    environment = dict(os.environ, DISKLET_TEST_BESIDE="yes") if options.beside else dict(os.environ)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run, test, environment): test for test in tally.longest_first(todo)}
        for done in concurrent.futures.as_completed(running):
            tally.add(running[done], done.result())


def run_alone(todo, options, tally):
    for test in tally.longest_first(todo):
        if is_mine(test, options.share):
            tally.add(test, run(test, dict(os.environ)))


def run_again(options, tally):
    if len(tally.failures) <= options.again:
        for test in list(tally.failures):
            tally.add_again(test, run(test, dict(os.environ)))


def main():
    options = arguments()
    tally = Tally(earlier_times(options.times))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, RUNNING.end_all)
    begun = time.monotonic()
    beside, alone, left = chosen(options)
    run_beside(beside, options, tally)
    run_alone(alone, options, tally)
    run_again(options, tally)
    if tally.failures:
        print("\nfailed:", *map(key, tally.failures), sep="\n    ")
    if tally.unsteady:
        print("  · unsteady, passed only when run once more:", *map(key, tally.unsteady))
    if left:
        print(f"  · {len(left)} left to --full by this commit:", *(key(test) for test in left))
    if options.times:
        # Another run may have written its own meanwhile.
        keep_times(options.times, earlier_times(options.times) | tally.times)
    how = "FAILED" if tally.failed or not tally.passed else "ok"
    print(f"test result: {how}. {tally.passed} passed; {tally.failed} failed; {len(left)} ignored; in {time.monotonic() - begun:.0f} s")
    return how != "ok"


if __name__ == "__main__":
    sys.exit(main())
