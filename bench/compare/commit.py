"""The `shoal` package of a commit, in `build/compare/<commit>`. Nothing else of the commit is needed.

It is extracted once, without a git worktree: nothing is left in `.git`, and `make clean` removes all of it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import made_once, run_step

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Tree", "checked_out", "extracted"]

ROOT = Path(__file__).parents[2]
_SHORT = 12
_LAUNCH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """`path` has the `shoal` package. `reused`: it is from an earlier run."""

    name: str
    path: Path
    reused: bool = False

    @property
    def program(self) -> Sequence[str]:
        return (sys.executable, "-P", str(_LAUNCH), str(self.path))


def checked_out() -> Tree:
    """This tree, with its uncommitted changes. Raises SetupError."""
    changed = _git("status", "--porcelain", "--", "shoal")
    return Tree(name=_git("rev-parse", "HEAD")[:_SHORT] + (" with changes" if changed else ""), path=ROOT)


async def extracted(revision: str, into: Path) -> Tree:
    """Raises SetupError if there is no such commit, or no `shoal` package in it."""
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    home = into / commit[:_SHORT]
    reused = home.exists()
    path = await made_once(home, commit, partial(_extract, commit))
    return Tree(name=commit[:_SHORT], path=path, reused=reused)


async def _extract(commit: str, into: Path) -> None:
    await trio.Path(into).mkdir(parents=True)
    archive = into / "shoal.tar"
    what = f"the shoal package of {commit[:_SHORT]}"
    await run_step("git", "-C", str(ROOT), "archive", "--output", str(archive), commit, "shoal", what=what)
    await run_step("tar", "--extract", "--file", str(archive), "--directory", str(into), what=what)
    await trio.Path(archive).unlink()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"git {' '.join(arguments)} failed: {done.stderr.strip() or 'no such commit'}")
    return done.stdout.strip()
