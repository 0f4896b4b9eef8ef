"""The images that benches read: 4 GiB disks with about 1.5 GiB of real files."""

import os
import random
import shutil
import subprocess
from pathlib import Path

FILES_MIB = 1200
NOISE_MIB = 256
DISK = 4 << 30
TREES = ["/usr/bin", "/usr/lib/python3", "/usr/share", "/usr/lib/x86_64-linux-gnu", "/usr/lib"]


def folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(cache) / "disklet" / "bench"
    made.mkdir(parents=True, exist_ok=True)
    return made


def sh(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make() -> dict[str, Path]:
    """The images by name; made once, kept outside of the repository."""
    home = folder()
    images = {name: home / f"{name}.qcow2" for name in ["plain", "zlib", "zstd"]}
    images["raw"] = home / "disk.raw"
    if all(path.exists() for path in images.values()):
        return images
    print("making the images: a few minutes, once", flush=True)
    new = home / "new.raw"
    filesystem_with_files(home / "tree", new)
    options = {
        "plain": [],
        "zlib": ["-c", "-o", "compression_type=zlib"],
        "zstd": ["-c", "-o", "compression_type=zstd"],
    }
    for name, flags in options.items():
        sh("qemu-img", "convert", "-f", "raw", "-O", "qcow2",
           *flags, str(new), str(images[name]))  # fmt: skip
    new.rename(images["raw"])
    return images


def filesystem_with_files(tree: Path, disk: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    copy_files(tree, FILES_MIB << 20)
    with open(tree / "noise", "wb") as noise:
        source = random.Random(7)
        for _ in range(NOISE_MIB):
            noise.write(source.randbytes(1 << 20))
    disk.unlink(missing_ok=True)
    with open(disk, "wb") as file:
        file.truncate(DISK)
    sh("mkfs.ext4", "-q", "-F", "-d", str(tree), str(disk))
    shutil.rmtree(tree)


def copy_files(tree: Path, room: int) -> None:
    """Copies ordinary files of this machine until the room is full."""
    number = 0
    for start in TREES:
        for directory, _, names in os.walk(start):
            for name in sorted(names):
                path = Path(directory) / name
                if path.is_symlink() or not path.is_file():
                    continue
                size = path.stat().st_size
                if size > room:
                    continue
                into = tree / f"{number // 1000:03}"
                into.mkdir(exist_ok=True)
                shutil.copyfile(path, into / f"{number}-{name}"[:200])
                room -= size
                number += 1
                if room < 1 << 20:
                    return
