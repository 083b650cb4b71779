"""A fact that must hold after a scenario: a name in plain English, and a check that reports the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CheckedFact", "Fact", "Seen", "at_least", "at_most", "check", "equals"]

Seen = dict[str, Any]
"""What a scenario has measured, by name; None: not measurable here (existing brokers give no figures)."""


class CheckedFact(NamedTuple):
    """`holds` None: not measured."""

    name: str
    holds: bool | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`value` extracts a value; None: not measured. `holds` judges it, `wanted` describes the right value."""

    name: str
    value: Callable[[Seen], Any]
    holds: Callable[[Any], bool]
    wanted: str


def equals(name: str, key: str, wanted: object) -> Fact:
    return Fact(name=name, value=lambda seen: seen[key], holds=lambda value: bool(value == wanted), wanted=f"{wanted}")


def at_most(name: str, key: str, limit: float) -> Fact:
    return Fact(
        name=name, value=lambda seen: seen[key], holds=lambda value: bool(value <= limit), wanted=f"at most {limit:g}"
    )


def at_least(name: str, key: str, limit: float) -> Fact:
    return Fact(
        name=name, value=lambda seen: seen[key], holds=lambda value: bool(value >= limit), wanted=f"at least {limit:g}"
    )


def check(fact: Fact, seen: Mapping[str, Any]) -> CheckedFact:
    """A fact about a value that the scenario did not record does not hold."""
    try:
        value = fact.value(dict(seen))
    except KeyError as error:
        return CheckedFact(fact.name, False, f"no value for {error}")
    if value is None:
        return CheckedFact(fact.name, None, "not measured on existing brokers")
    if fact.holds(value):
        return CheckedFact(fact.name, True, _shown(value))
    return CheckedFact(fact.name, False, f"{_shown(value)}, wanted: {fact.wanted}")


def _shown(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
