"""The jobs of `script/bench block`, with the peers' command lines."""

import contextlib
import shlex
import shutil
import subprocess
from pathlib import Path

from pairs import Bars, best, median_of, pairs, ratio, run

BEST = ["-W", "-m", "16"]
PEAK_MIB = 96


class Bench:
    """Where the jobs work, and what they found."""

    def __init__(self, work: Path, images: dict[str, Path], disklet: Path, bars: Bars) -> None:
        self.work = work
        self.images = images
        self.disklet = str(disklet)
        self.inprocess = str(disklet.parent / "examples" / "inprocess")
        self.bars = bars
        self.rows = []
        self.commands = []
        self.cleanup = contextlib.ExitStack()

    def close(self) -> None:
        self.cleanup.close()

    def row(self, name: str, ours: str, peer: str, wall: str, cpu: str, verdict: str) -> None:
        self.rows.append((name, ours, peer, wall, cpu, verdict))
        print(f"{name}\n    ours {ours}, peer {peer}; wall {wall}; cpu {cpu}; {verdict}", flush=True)

    def command(self, command: list[str]) -> None:
        line = shlex.join(command)
        memory = str(Path("/dev/shm") / self.work.name)
        for path, name in [(self.disklet, "disklet"), (memory, "TMPFS"), (str(self.work), "DIR")]:
            line = line.replace(path, name)
        for name, path in self.images.items():
            line = line.replace(str(path), name.upper())
        self.commands.append(line)
        print(f"    $ {line}", flush=True)

    def tmpfs(self) -> Path:
        folder = Path("/dev/shm") / self.work.name
        if not folder.exists():
            folder.mkdir()
            self.cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def xfs(self) -> Path:
        """A filesystem that can share blocks, on a file."""
        mount = self.work / "xfs"
        if not mount.exists():
            mount.mkdir()
            disk = self.work / "xfs.img"
            with open(disk, "wb") as file:
                file.truncate(12 << 30)
            subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", disk], check=True)
            subprocess.run(["mount", "-o", "loop", disk, mount], check=True)
            self.cleanup.callback(subprocess.run, ["umount", mount], check=True)
        return mount

    def markdown(self, about: str, count: int) -> str:
        lines = [f"{about}; {count} pairs of each.", ""]
        lines += ["| job | ours | peer | faster | less CPU | bars |", "|---|---|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines += ["", "Command lines, in the same order:", "", "```text", *self.commands, "```", ""]
        return "\n".join(lines)


def conversion(bench: Bench, name: str, ours: list[str], peers: list[list[str]], target: Path,
               check, wall_bar=None, cpu_bar=None, size_bar=None, ms_bar=None) -> None:  # fmt: skip
    """Measures a conversion into a target, which is made anew each time."""

    def fresh(command):
        target.unlink(missing_ok=True)
        return run(command)

    peer = best(peers, lambda candidate: fresh(candidate).wall)
    bench.command(peer)
    fresh(peer)
    their_size = target.stat().st_blocks
    bench.command(ours)
    fresh(ours)
    check(target)
    results = pairs(lambda: fresh(ours), lambda: fresh(peer))
    wall, cpu = ratio(results, lambda r: r.wall), ratio(results, lambda r: r.cpu)
    verdicts = []
    if wall_bar:
        verdicts.append("wall " + bench.bars.at_least(f"{name}, wall", wall.median, wall_bar))
    if cpu_bar:
        verdicts.append("cpu " + bench.bars.at_least(f"{name}, cpu", cpu.median, cpu_bar))
    if size_bar:
        fresh(ours)
        larger = target.stat().st_blocks / their_size
        verdicts.append(f"size {larger:.3f} " + bench.bars.at_most(f"{name}, size", larger, size_bar))
    target.unlink(missing_ok=True)
    mine, theirs = zip(*results, strict=True)
    if ms_bar:
        took = median_of(mine, lambda r: r.wall) * 1e3
        verdicts.append(f"{took:.0f} ms " + bench.bars.at_most(f"{name}, ms", took, ms_bar))
    bench.row(
        name,
        f"{median_of(mine, lambda r: r.wall):.2f} s",
        f"{median_of(theirs, lambda r: r.wall):.2f} s",
        str(wall),
        str(cpu),
        "; ".join(verdicts) or "no bar",
    )


def to_raw(kind: str, place: str, wall_bar=None, cpu_bar=None):
    def job(bench: Bench) -> None:
        source = str(bench.images[kind])
        folder = bench.tmpfs() if place == "tmpfs" else bench.work
        target = folder / "target.raw"
        # Without -t nothing is made durable: right for memory, not for a disk.
        modes = (
            [[], ["-t", "writeback"]]
            if place == "tmpfs"
            else [["-t", "none"], ["-t", "none", "-T", "none"], ["-t", "writeback"]]
        )
        qemu = ["qemu-img", "convert", *BEST]
        names = ["-f", "qcow2", "-O", "raw", source, str(target)]
        conversion(
            bench,
            f"{kind} qcow2 -> raw, {place}",
            [bench.disklet, "image", "convert", *names],
            [[*qemu, *mode, *names] for mode in modes],
            target,
            lambda made: same_disk(bench, made, "raw"),
            wall_bar,
            cpu_bar,
        )

    return job


def to_qcow2(kind: str, cpu_bar: float, size_bar: float):
    def job(bench: Bench) -> None:
        source = str(bench.images["raw"])
        target = bench.work / "target.qcow2"
        qemu = ["qemu-img", "convert", *BEST, "-c", "-o", f"compression_type={kind}"]
        names = ["-f", "raw", "-O", "qcow2", source, str(target)]
        conversion(
            bench,
            f"raw -> {kind} qcow2",
            [bench.disklet, "image", "convert", "-c", kind, *names],
            [[*qemu, *mode, *names] for mode in [["-t", "none"], ["-t", "writeback"]]],
            target,
            lambda made: same_disk(bench, made, "qcow2"),
            None,
            cpu_bar,
            size_bar,
        )

    return job


def same_disk(bench: Bench, made: Path, kind: str) -> None:
    """qemu-img judges what was made."""
    compare = ["qemu-img", "compare", "-f", "raw", "-F", kind, str(bench.images["raw"]), str(made)]
    run(compare)
    if kind == "qcow2":
        run(["qemu-img", "check", "-f", kind, str(made)])


def sharing(bench: Bench) -> None:
    """Source and target on a filesystem that can share blocks."""
    mount = bench.xfs()
    source, target = mount / "plain.qcow2", mount / "target.raw"
    shutil.copyfile(bench.images["plain"], source)
    names = ["-f", "qcow2", "-O", "raw", str(source), str(target)]
    modes = [[], ["-t", "none"], ["-t", "writeback"]]
    peers = [["qemu-img", "convert", "-C", *mode, *names] for mode in modes]
    conversion(
        bench,
        "plain qcow2 -> raw, sharing blocks (xfs), by command",
        [bench.disklet, "image", "convert", *names],
        peers,
        target,
        lambda made: same_disk(bench, made, "raw"),
        8,
    )

    def fresh(command):
        target.unlink(missing_ok=True)
        return run(command)

    def seconds():
        return numbers([bench.inprocess, "convert", str(source), str(target), "1"])[0]

    peer = best(peers, lambda candidate: fresh(candidate).wall)
    bench.command(peer)
    seconds()
    same_disk(bench, target, "raw")
    results = pairs(seconds, lambda: fresh(peer).wall)
    in_process(bench, "plain qcow2 -> raw, sharing blocks (xfs), in-process", results, 15)
    target.unlink()


def numbers(command: list[str]) -> list[float]:
    """What the in-process program printed, in seconds."""
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [int(line) / 1e9 for line in out.split()]


def in_process(bench: Bench, name: str, results: list, bar: float) -> None:
    wall = ratio(results, lambda seconds: seconds)
    mine, theirs = zip(*results, strict=True)
    bench.row(
        name,
        f"{median_of(mine, float) * 1e3:.2f} ms",
        f"{median_of(theirs, float) * 1e3:.2f} ms",
        str(wall),
        "–",
        "wall " + bench.bars.at_least(f"{name}, wall", wall.median, bar),
    )


def strided(depth: int, cache: str):
    def job(bench: Bench) -> None:
        top = bench.work / "top.qcow2"
        top.unlink(missing_ok=True)
        base = bench.images["plain"]
        run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(top)])
        count, step = (200_000 if cache == "writeback" else 50_000), 69632
        # Threads, io_uring, and where the page cache takes no part the kernel's
        # own asynchronous requests.
        ways = [[], ["-i", "io_uring"]] + ([["-n"]] if cache == "none" else [])
        peers = [
            ["qemu-img", "bench", "-f", "qcow2", "-t", cache, *way, "-c", str(count),
             "-d", str(depth), "-s", "4096", "-S", str(step), str(top)]  # fmt: skip
            for way in ways
        ]
        ours = [bench.inprocess, "strided", str(top), str(base.parent), str(step), str(count),
                str(depth), cache, "1"]  # fmt: skip

        def seconds(command: list[str]) -> float:
            # qemu-img 10.0.2 with io_uring ends in a segmentation fault now and
            # then: such a run is no measurement, and is repeated.
            for _ in range(5):
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode >= 0:
                    break
                print(f"    the peer ended by signal {-done.returncode}, again", flush=True)
            if done.returncode:
                # Never a number: a peer that fails has not been beaten.
                raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
            return float(done.stdout.rsplit("Run completed in ", 1)[1].split()[0])

        def tried(command: list[str]) -> float:
            try:
                return seconds(command)
            except RuntimeError as error:
                # Not every kernel or container has every way.
                print(f"    not a peer here: {error}", flush=True)
                return float("inf")

        peer = best(peers, tried)
        bench.command(peer)
        name = f"4 KiB reads through a chain of two, depth {depth}, cache {cache}"
        in_process(bench, name, pairs(lambda: numbers(ours)[0], lambda: seconds(peer)), 1)

    return job


def overlay(bench: Bench) -> None:
    base = str(bench.images["plain"])
    target = bench.work / "overlay.qcow2"
    alone = numbers([bench.inprocess, "overlay", base, str(bench.work), "51"])
    run(["qemu-img", "check", str(target)])
    beyond = median_of(alone, float) * 1e3
    verdict = bench.bars.at_most("overlay create beyond its flushes, ms", beyond, 1)
    bench.row("overlay create, durable, in-process", f"{beyond:.3f} ms beyond its flushes",
              "–", "–", "–", verdict)  # fmt: skip
    conversion(
        bench,
        "overlay create, durable, by command",
        [bench.disklet, "image", "create", "-f", "qcow2", "-b", base, "-F", "qcow2", str(target)],
        [["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", str(target)]],
        target,
        lambda made: run(["qemu-img", "check", str(made)]),
        1,
    )


def memory(bench: Bench) -> None:
    """Peak memory of conversions of every kind."""
    sparse, small = bench.work / "1t.qcow2", bench.work / "small.qcow2"
    run(["qemu-img", "create", "-q", "-f", "qcow2", str(sparse), "1T"])
    writes = [f"write -P {7 + at} {at * 100}G 1M" for at in range(10)]
    run(["qemu-io", "-f", "qcow2", *(part for w in writes for part in ("-c", w)), str(sparse)])
    first_gib = bench.work / "first.raw"
    with open(bench.images["raw"], "rb") as disk, open(first_gib, "wb") as part:
        for _ in range(1024):
            part.write(disk.read(1 << 20))
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=512",
         str(first_gib), str(small)])  # fmt: skip
    large = bench.work / "large.qcow2"
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-o", "cluster_size=2M",
         str(first_gib), str(large)])  # fmt: skip
    target = bench.work / "target"
    cases = [
        ("1 GiB raw", first_gib, "raw"),
        ("4 GiB zlib qcow2", bench.images["zlib"], "qcow2"),
        ("4 GiB zstd qcow2", bench.images["zstd"], "qcow2"),
        ("1 TiB sparse qcow2", sparse, "qcow2"),
        ("1 GiB qcow2 of 512 B clusters", small, "qcow2"),
        ("1 GiB zlib qcow2 of 2 MiB clusters", large, "qcow2"),
    ]
    into = [
        ("raw", []),
        ("qcow2", []),
        ("qcow2", ["-c", "zlib"]),
        ("qcow2", ["-c", "zstd"]),
        ("qcow2", ["-c", "zstd", "--cluster-size", "2M", "-t", "64"]),
    ]
    for name, source, form in cases:
        peaks = {}
        for out, flags in into:
            target.unlink(missing_ok=True)
            command = [bench.disklet, "image", "convert", "-f", form, "-O", out, *flags,
                       str(source), str(target)]  # fmt: skip
            peaks[" ".join([out, *flags[1:]])] = run(command).peak_mib
        target.unlink(missing_ok=True)
        peaks["raw out of a pipe"] = from_pipe(bench, form, source, target).peak_mib
        worst = max(peaks.values())
        verdict = bench.bars.at_most(f"peak memory, {name}, MiB", worst, PEAK_MIB)
        each = ", ".join(f"{out} {peak:.0f}" for out, peak in peaks.items())
        bench.row(f"peak memory: {name}", f"{each} MiB", "–", "–", "–", verdict)
    target.unlink()


def from_pipe(bench: Bench, form: str, source: Path, target: Path):
    """Converts what another program pipes."""
    command = [bench.disklet, "image", "convert", "-f", form, "-O", "raw", "-", str(target)]
    with subprocess.Popen(["cat", str(source)], stdout=subprocess.PIPE) as cat:
        return run(command, stdin=cat.stdout)


JOBS = {
    "zlib-tmpfs": to_raw("zlib", "tmpfs", 2.5, 2),
    "zlib-disk": to_raw("zlib", "disk", 2.5, 2),
    "zstd-tmpfs": to_raw("zstd", "tmpfs", 1.8),
    "zstd-disk": to_raw("zstd", "disk", 1.8),
    "plain-disk": to_raw("plain", "disk", 0.95),
    "sharing": sharing,
    "pack-zlib": to_qcow2("zlib", 2, 1.05),
    "pack-zstd": to_qcow2("zstd", 1.6, 1.03),
    "strided-1": strided(1, "writeback"),
    "strided-8": strided(8, "writeback"),
    "strided-direct": strided(8, "none"),
    "overlay": overlay,
    "memory": memory,
}
