"""What a bench ran on, in one line."""

import os
import platform
import subprocess
import time
from pathlib import Path


def machine() -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    qemu = subprocess.run(["qemu-img", "--version"], capture_output=True, text=True, check=True)
    return (
        f"{os.cpu_count()} cores ({model}), {memory} GiB, Linux {platform.release()}, "
        f"{qemu.stdout.splitlines()[0]}, load {os.getloadavg()[0]:.1f}, "
        f"{time.strftime('%Y-%m-%d')}"
    )
