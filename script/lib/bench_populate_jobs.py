"""The jobs of `script/bench populate`, with the peers' command lines."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench_block_jobs import BEST, Bench
from pairs import Run, median_of, pairs, ratio, run

GIB = 1 << 30
UPLOADED = 2 * GIB
PEAK_MIB = 128
IMAGE = "bench/disk:1"
LONGEST_S = 600


@dataclass
class Sources:
    """What is uploaded, and the disk that must come out of it."""

    noise: Path
    real: Path
    zlib: Path
    wrapped: Path
    plain: Path
    disk: Path

    @classmethod
    def make(cls, bench: Bench) -> "Sources":
        noise, real = bench.work / "noise.raw", bench.work / "real.raw"
        with open(noise, "wb") as file:
            for _ in range(UPLOADED >> 20):
                file.write(os.urandom(1 << 20))
        with open(bench.images["raw"], "rb") as disk, open(real, "wb") as file:
            for _ in range(UPLOADED >> 20):
                file.write(disk.read(1 << 20))
        wrapped = bench.work / "plain.qcow2.gz"
        with open(wrapped, "wb") as file:
            subprocess.run(["gzip", "-1", "-c", bench.images["plain"]], stdout=file, check=True)
        images = bench.images
        return cls(noise, real, images["zlib"], wrapped, images["plain"], images["raw"])


class Server:
    """A server that runs in the foreground, as one process, and what it has cost."""

    def __init__(self, command: list[str], port: int) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                told = self.process.communicate()[1].decode(errors="replace")
                raise SystemExit(f"{shlex.join(command)} does not listen: {told}")
            time.sleep(0.01)

    def end(self, asks: bool = True) -> Run:
        """Its CPU time and memory; one that ends by itself need not be asked."""
        if asks:
            self.process.terminate()
        _, _, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = 0
        self.process.stderr.close()
        return Run(0, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def timed(*commands: list[str]) -> Run:
    """Several commands as one."""
    runs = [run(command) for command in commands]
    return Run(
        sum(each.wall for each in runs),
        sum(each.cpu for each in runs),
        max(each.peak_mib for each in runs),
    )


def curl(source: Path, address: str, *headers: str) -> list[str]:
    flags = [part for header in headers for part in ("-H", header)]
    return ["curl", "-sS", "--fail", "-T", str(source), *flags, address]


def to_disklet(bench: Bench, source: Path, target: Path, limit: int = LONGEST_S) -> Run:
    """curl's time, until the disk is durable; the server's CPU time and memory."""
    target.unlink(missing_ok=True)
    state, token = bench.work / "state", bench.work / "token"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    port = free_port()
    command = [bench.disklet, "serve", "upload", "--target", str(target), "--state-dir", str(state),
               "--listen", f"127.0.0.1:{port}", "--token-file", str(token)]  # fmt: skip
    server = Server(command, port)
    words = f"Authorization: Bearer {token.read_text().strip()}"
    client = run([*curl(source, f"http://127.0.0.1:{port}/upload", words), "-m", str(limit)])
    cost = server.end(asks=False)
    return Run(client.wall, client.cpu + cost.cpu, cost.peak_mib)


def to_nginx(bench: Bench, source: Path, name: str) -> Run:
    """The same to a web server that keeps what it gets, durable as well."""
    folder = bench.work / "nginx"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    port = free_port()
    (folder / "nginx.conf").write_text(
        f"""daemon off; master_process off; user root; pid {folder}/pid; error_log {folder}/log;
        events {{}}
        http {{
            access_log off; client_max_body_size 0;
            client_body_temp_path {folder}/body; proxy_temp_path {folder}/p;
            fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
            server {{
                listen 127.0.0.1:{port};
                location / {{ root {folder}/files; dav_methods PUT; }}
            }}
        }}"""
    )
    server = Server(["nginx", "-c", str(folder / "nginx.conf")], port)
    put = timed(
        curl(source, f"http://127.0.0.1:{port}/{name}"), ["sync", str(folder / "files" / name)]
    )
    cost = server.end()
    return Run(put.wall, put.cpu + cost.cpu, cost.peak_mib)


def beside(
    bench: Bench, name: str, ours: Callable[[], Run], peer: Callable[[], Run], bar: float
) -> None:
    results = pairs(ours, peer)
    wall, cpu = ratio(results, lambda r: r.wall), ratio(results, lambda r: r.cpu)
    mine, theirs = zip(*results, strict=True)
    peak = max(each.peak_mib for each in mine)
    verdicts = [
        "wall " + bench.bars.at_least(f"{name}, wall", wall.median, bar),
        f"{peak:.0f} MiB " + bench.bars.at_most(f"{name}, MiB", peak, PEAK_MIB),
    ]
    bench.row(
        name,
        f"{median_of(mine, lambda r: r.wall):.2f} s",
        f"{median_of(theirs, lambda r: r.wall):.2f} s",
        str(wall),
        str(cpu),
        "; ".join(verdicts),
    )


def demand_same(disk: Path, made: Path) -> None:
    run(["qemu-img", "compare", "-q", "-f", "raw", "-F", "raw", str(disk), str(made)])


def upload_raw(bench: Bench, what: str, source: Path) -> None:
    target = bench.work / "target.raw"
    to_disklet(bench, source, target)
    demand_same(source, target)
    beside(
        bench,
        f"upload raw 2 GiB, {what}",
        lambda: to_disklet(bench, source, target),
        lambda: to_nginx(bench, source, "disk.raw"),
        0.8,
    )
    target.unlink()


def converted(source: Path, target: Path) -> Run:
    target.unlink(missing_ok=True)
    names = ["-f", "qcow2", "-O", "raw", str(source), str(target)]
    return run(["qemu-img", "convert", *BEST, "-t", "none", *names])


def upload(bench: Bench, what: str, source: Path, wrapped: bool) -> None:
    target, theirs = bench.work / "target.raw", bench.work / "theirs.raw"

    def peer() -> Run:
        put = to_nginx(bench, source, source.name)
        kept = bench.work / "nginx" / "files" / source.name
        steps = [put]
        if wrapped:
            steps.append(run(["gzip", "-d", str(kept)]))
            kept = kept.with_suffix("")
        steps.append(converted(kept, theirs))
        return Run(sum(s.wall for s in steps), sum(s.cpu for s in steps), put.peak_mib)

    to_disklet(bench, source, target)
    demand_same(bench.images["raw"], target)
    beside(bench, f"upload {what}", lambda: to_disklet(bench, source, target), peer, 2)
    target.unlink()
    theirs.unlink(missing_ok=True)
    shutil.rmtree(bench.work / "nginx")


@contextlib.contextmanager
def registry(bench: Bench, sources: Sources):
    """A registry with the image in it, whose one layer is packed by gzip."""
    folder, port = bench.work / "registry", free_port()
    folder.mkdir()
    (folder / "config.yml").write_text(
        f"""version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/blobs}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
    )
    server = Server(["docker-registry", "serve", str(folder / "config.yml")], port)
    try:
        layout, files = bench.work / "layout", bench.work / "files"
        files.mkdir()
        os.link(sources.plain, files / "disk.qcow2")
        run(["umoci", "init", "--layout", str(layout)])
        run(["umoci", "new", "--image", f"{layout}:1"])
        run(["umoci", "insert", "--image", f"{layout}:1", str(files), "/disk"])
        run(["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{layout}:1",
             f"docker://127.0.0.1:{port}/{IMAGE}"])  # fmt: skip
        shutil.rmtree(layout)
        yield f"127.0.0.1:{port}/{IMAGE}"
    finally:
        server.end()
        shutil.rmtree(folder)


def registry_copy(bench: Bench, sources: Sources) -> None:
    target, theirs = bench.work / "target.raw", bench.work / "theirs.raw"
    scratch = bench.work / "skopeo"
    with registry(bench, sources) as image:

        def ours() -> Run:
            target.unlink(missing_ok=True)
            return run([bench.disklet, "populate", "registry", "--image", image, "--plain-http",
                        "--progress", "none", "--target", str(target)])  # fmt: skip

        def peer() -> Run:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            copy = ["skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{image}",
                    f"dir:{scratch}/image"]  # fmt: skip
            steps = [run(copy)]
            layer = max((scratch / "image").iterdir(), key=lambda path: path.stat().st_size)
            steps.append(run(["tar", "-x", "-z", "-C", str(scratch), "-f", str(layer)]))
            steps.append(converted(scratch / "disk" / "disk.qcow2", theirs))
            return Run(sum(s.wall for s in steps), sum(s.cpu for s in steps), 0)

        ours()
        demand_same(sources.disk, target)
        beside(bench, "registry copy, gzip layer with qcow2", ours, peer, 2)
    for path in [target, theirs]:
        path.unlink(missing_ok=True)
    shutil.rmtree(scratch)


def memory(bench: Bench, sources: Sources) -> None:
    """A disk of 64 GiB, of which little is data; the jobs above have told of 1 GiB and more."""
    sparse, target = bench.work / "sparse.qcow2", bench.work / "target.raw"
    run(["qemu-img", "create", "-q", "-f", "qcow2", str(sparse), "64G"])
    writes = [f"write -P {1 + at} {at}G 16M" for at in range(64)]
    run(["qemu-io", "-f", "qcow2", *(part for w in writes for part in ("-c", w)), str(sparse)])
    peak = to_disklet(bench, sparse, target).peak_mib
    run(["qemu-img", "compare", "-q", "-f", "qcow2", "-F", "raw", str(sparse), str(target)])
    verdict = f"{peak:.0f} MiB " + bench.bars.at_most("memory, 64 GiB, MiB", peak, PEAK_MIB)
    bench.row("upload qcow2 of 64 GiB, sparse", f"{peak:.0f} MiB", "–", "–", "–", verdict)
    sparse.unlink()
    target.unlink()
