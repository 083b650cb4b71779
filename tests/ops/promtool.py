"""promtool, of the Debian package prometheus (`scripts/setup prometheus`)."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["metric_problems", "rule_problems", "trial_problems"]


def metric_problems(text: bytes) -> list[str]:
    """What `promtool check metrics` says about a scrape."""
    return _problems(_run("check", "metrics", sent=text))


def rule_problems(rules: Path) -> list[str]:
    """What `promtool check rules` finds; nothing if it accepts them."""
    done = _run("check", "rules", "--lint-fatal", str(rules))
    return [] if done.returncode == 0 else _problems(done)


def trial_problems(trials: Path) -> list[str]:
    """What `promtool test rules` finds; nothing if all tests pass."""
    done = _run("test", "rules", str(trials))
    return [] if done.returncode == 0 else _problems(done)


def _run(*argv: str, sent: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Raises FileNotFoundError if promtool is not installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        raise FileNotFoundError("promtool is not installed: scripts/setup prometheus")
    return subprocess.run([promtool, *argv], input=sent, capture_output=True, check=False)


def _problems(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    said = (done.stdout + done.stderr).decode().splitlines()
    return said or ([f"exit status {done.returncode}"] if done.returncode else [])
