"""Flags that set keys of settings. The key gives a flag its type, its choices and its default.

The namespace has an entry `section.field` for each flag that was given, and none for the others.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.command_line import typed, whole
from shoal.proxy.config.schema import choices_of, form_of, item_of, keys_of
from shoal.proxy.config.security import File, Secret
from shoal.proxy.config.settings import KIB, MAX_PRODUCER_SLOTS, MIB, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SettingFlag", "add_setting", "seconds", "some_seconds", "written"]


class SettingFlag(NamedTuple):
    key: str
    metavar: str | None
    what: str  # {}: the default


def add_setting(
    group: argparse._ActionsContainer,
    name: str,
    flag: SettingFlag,
    section: str,
    settings: type,
    *,
    listed: bool = True,
) -> None:
    """`listed` false: the help does not show it."""
    key = keys_of(settings)[flag.key]
    default = settings.__dataclass_fields__[key.field].default  # type: ignore[attr-defined]
    what = flag.what.format(_shown(default, key.kind)) if listed else argparse.SUPPRESS
    form = _form(key.kind, flag.metavar)
    group.add_argument(name, dest=f"{section}.{key.field}", default=argparse.SUPPRESS, help=what, **form)


def _shown(default: object, kind: object) -> object:
    if kind is Size and isinstance(default, int):
        return f"{default // MIB}MiB" if default % MIB == 0 else f"{default // KIB}KiB"
    return f"{default:g}" if isinstance(default, float) else default


def _form(kind: Any, metavar: str | None) -> dict[str, Any]:
    """The options of `add_argument` for a value of type `kind`."""
    if kind is bool:
        return {"action": "store_true"}
    if item := item_of(kind):
        return {"action": "append"} | _form(item, metavar)
    if known := choices_of(kind):
        return {"choices": list(known), "type": lambda word: known.get(word, word), "metavar": metavar}
    return {"type": typed(_TYPES.get(kind) or form_of(kind).parse), "metavar": metavar}


def written(flags: argparse.Namespace, section: str) -> dict[str, Any]:
    """The fields of `section` that were set by flags."""
    found = {name: value for name, value in vars(flags).items() if name.startswith(f"{section}.")}
    return {name.partition(".")[2]: tuple(x) if isinstance(x, list) else x for name, x in found.items()}


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ValueError(f"{text!r} is not a number of seconds, for example 5")
    return value


def some_seconds(text: str) -> float:
    value = seconds(text)
    if not value:
        raise ValueError(f'"{text}" is too short: write a number of seconds above 0, for example 5')
    return value


def _secret_file(text: str) -> Secret:
    """The value of a flag is never a secret: it names the file."""
    file = form_of(File).parse(text)
    return Secret(file=file)


_TYPES: Mapping[object, Callable[[str], object]] = {
    float: seconds,
    int: whole(1, MAX_PRODUCER_SLOTS),  # producer-slots is the only int
    Secret: _secret_file,
}
