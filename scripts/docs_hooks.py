"""Pages of the site that are made from code when `make docs` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

COMMANDS = (
    (),
    ("mirror",),
    ("run",),
    ("check",),
    ("probe",),
    ("reload",),
    ("users",),
    ("users", "add"),
    ("users", "remove"),
    ("users", "list"),
    ("capture",),
    ("capture", "ls"),
    ("capture", "cat"),
    ("capture", "verify"),
    ("capture", "compact"),
    ("capture", "to-pcap"),
    ("clients",),
    ("status",),
    ("top",),
    ("replay",),
    ("spark",),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "cli.md", content=_command_line()))
    return files


def _command_line() -> str:
    parts = ["# Command line\n\nThe help of every command, as it prints it.\n"]
    for words in COMMANDS:
        name = " ".join(["shoal", *words])
        parts.append(f"## {name}\n\n```text\n{_help(*words)}```\n")
    return "\n".join(parts)


def _help(*words: str) -> str:
    argv = [sys.executable, "-m", "shoal", *words, "--help"]
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=environment).stdout
