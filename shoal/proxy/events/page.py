"""The tables of events and fields as Markdown: docs/events.md."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from shoal.proxy.events.fields import FIELDS
from shoal.proxy.events.table import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.events.fields import Field
    from shoal.proxy.events.table import Event

__all__ = ["page"]

_HEAD = """\
# Events of the log

This page is generated: `python -m shoal.proxy.events > docs/events.md`.

With `--log-format json` (`[log] format = "json"`) each line of standard error is one JSON object:

| key | value |
|---|---|
| `time` | UTC, ISO 8601, milliseconds |
| `level` | `debug`, `info`, `warning`, `error`, `critical` |
| `event` | the id of the event |
| `worker` | with several workers: the number of the one that writes; absent in lines of the supervisor |
| `message` | the sentence that the human form has; absent if the human form shows the fields |
| `exception` | a traceback, for errors in Shoal |

and the fields of the event, as below. A field without a value is left out. Ids, fields and codes are stable; sentences,
and all that is "for people", may change. Texts that are longer than 2,000 characters lack their middle. Lines that
could repeat without a bound are limited: `left_out` has the number of those that are missing.
"""
_GROUPS = re.compile(r"^(coalesced|legacy)_\w+")  # all of them or none


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for title, events in SECTIONS.items():
        yield from (f"## {title}", "", "| event | level | meaning, and what to do | fields |", "|---|---|---|---|")
        yield from map(_event, events)
        yield ""
    yield from ("## Fields", "", "| field | kind | meaning |", "|---|---|---|")
    yield from (f"| `{name}` | {field.kind.value} | {field.meaning} |" for name, field in FIELDS.items())
    yield from ("", "## Codes", "", "Each with the text that sentences have for it.")
    for name, field in FIELDS.items():
        if field.codes is not None:
            yield from _codes(name, field)


def _event(event: Event) -> str:
    levels = " or ".join(logging.getLevelName(level).lower() for level in event.levels)
    text = f"{event.meaning} **{event.action}**" if event.action else event.meaning
    names = dict.fromkeys(_GROUPS.sub(r"\1_*", name) for name in event.fields)
    return f"| `{event.id}` | {levels} | {text} | {' '.join(f'`{name}`' for name in names)} |"


def _codes(name: str, field: Field) -> Iterator[str]:
    yield from ("", f"### {name}", "", "| code | text |", "|---|---|")
    for member in field.codes or ():
        yield f"| `{member.name.lower()}` | {member.value} |"
