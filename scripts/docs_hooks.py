"""Pages of the site that are made from code when `make docs` runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from shoal.completion import whole_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

    from shoal.command_line import Parser


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "cli.md", content=_command_line()))
    return files


def _command_line() -> str:
    os.environ.update(COLUMNS="80", NO_COLOR="1")  # argparse reads them
    parts = ["# Command line\n\nThe help of every command, as it prints it.\n"]
    for parser in _parsers(whole_parser()):
        parts.append(f"## {parser.prog}\n\n```text\n{parser.format_help()}```\n")
    return "\n".join(parts)


def _parsers(parser: Parser) -> Iterator[Parser]:
    """A command, then its sub-commands."""
    yield parser
    for inner in parser.commands.values():
        yield from _parsers(inner)
