"""Inputs that broke the invariant, kept to be run again."""

import hashlib
import re
import sys
from pathlib import Path

__all__ = ["KEPT", "keep", "slug"]

KEPT = Path("build/fuzz")


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def keep(name: str, data: bytes, directory: Path = KEPT) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{slug(name)}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    print(f"{name}: BROKEN. Again: python -m tests.fuzz --replay {path} {name!r}", file=sys.stderr, flush=True)
