"""promtool, installed by `scripts/setup promtool`."""

from __future__ import annotations

import shutil
import subprocess

from shoal.scenarios.kafka.java.jars import BUILD

__all__ = ["find_promtool", "metric_problems"]


def find_promtool() -> str:
    """Raises FileNotFoundError."""
    own = BUILD / "go" / "promtool"
    found = str(own) if own.exists() else shutil.which("promtool")
    if found is None:
        raise FileNotFoundError("promtool is not installed: scripts/setup promtool")
    return found


def metric_problems(text: bytes) -> list[str]:
    """What `promtool check metrics` says about a scrape."""
    done = subprocess.run([find_promtool(), "check", "metrics"], input=text, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode().splitlines()
    return said or ([f"exit status {done.returncode}"] if done.returncode else [])
