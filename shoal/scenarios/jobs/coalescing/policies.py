"""The policies that are compared, and their syntax on a command line: `linger=5ms,bytes=1m,sets=64,group=broker`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from shoal.command_line import did_you_mean
from shoal.protocol.coalesce.policy import JoinLimits
from shoal.scenarios.jobs.coalescing.lanes import Rules

__all__ = ["GROUPS", "POLICIES", "Policy", "read_policy"]

_DEFAULT: Final = JoinLimits()
_NS: Final = 1_000_000_000
GROUPS: Final = ("broker", "connection", "partition")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "k": 1024, "m": 1024 * 1024, "": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A coalescing listener's settings. Times are seconds, sizes bytes.

    `group`: what may be joined. `broker`: everything for one broker (what Shoal does); `connection`: within a client
    connection; `partition`: within a partition, as if each had its own leader. `client_ids`: only within a client id.
    """

    linger: float = 0.0
    bytes: int = _DEFAULT.request_bytes
    count: int = _DEFAULT.request_batches
    sets: int = 1
    flight: int = _DEFAULT.in_flight
    patience: float = _DEFAULT.patience
    group: str = "broker"
    client_ids: bool = False
    slowest: bool = False

    @property
    def name(self) -> str:
        """The settings that differ from the defaults."""
        said = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default or field.name in {"linger", "group"}:
                said.append(f"{field.name.replace('_', '-')}={_text(field.name, value)}")
        return ",".join(said)

    @property
    def rules(self) -> Rules:
        return Rules(
            linger=round(self.linger * _NS),
            request_bytes=self.bytes,
            request_batches=self.count,
            set_batches=self.sets,
            in_flight=self.flight,
            patience=round(self.patience * _NS),
            slowest=self.slowest,
        )


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value * 1000:g}ms"
    return f"{value // 1024}k" if name == "bytes" and isinstance(value, int) and value % 1024 == 0 else str(value)


def read_policy(text: str) -> Policy:
    """The inverse of `name`. Raises ValueError, which names the mistake."""
    kinds = {field.name: type(field.default) for field in fields(Policy)}
    given: dict[str, object] = {}
    for piece in filter(None, text.split(",")):
        name, _, value = piece.partition("=")
        name = name.strip().replace("-", "_")
        if name not in kinds:
            raise ValueError(f"a policy has no {name!r}; {did_you_mean(name, kinds)}it has {', '.join(kinds)}")
        given[name] = _value(kinds[name], name, value.strip())
    if given.get("group", "broker") not in GROUPS:
        raise ValueError(f"group is one of {', '.join(GROUPS)}")
    return Policy(**given)  # type: ignore[arg-type]


def _value(kind: type, name: str, text: str) -> object:
    if kind is bool:
        return text in {"yes", "true", "1", ""}
    if kind is str:
        return text
    number = text.rstrip("usmkUSMK")
    try:
        size = float(number) * _UNITS[text[len(number) :].lower()]
    except (ValueError, KeyError):
        raise ValueError(f"{name}={text}: a number, with us, ms, s, k or m") from None
    if size < (0 if kind is float else 1):
        raise ValueError(f"{name}={text}: too small")
    return size if kind is float else round(size)


POLICIES: Final = (
    Policy(client_ids=True),
    Policy(),
    Policy(linger=0.001),
    Policy(linger=0.002),
    Policy(linger=0.005),
    Policy(linger=0.010),
    Policy(linger=0.020),
    Policy(linger=0.005, sets=64),
    Policy(linger=0.005, bytes=64 * 1024),
    Policy(linger=0.005, count=20),
    Policy(linger=0.005, sets=64, group="connection"),
    Policy(linger=0.005, sets=64, group="partition"),
)
"""The default comparison."""
