"""Which new connections a listener accepts: a decision of microseconds, before anything is allocated for the client.

    accept ── address list ── all ── of the address ── rate of the address ── without a login ──> Guest
                   └───────────┴──────────┴───────────────────┴──────────────────┴──> a reset, and a count

A `Guest` is one accepted connection in these counts, until it ends. While it is a *stranger* (it has yet to log in,
finish its TLS handshake or send its PROXY protocol header) it also counts in `Strangers`, which all listeners share.
A stranger that ends without a login stays counted there for a second: so a client that reconnects quickly cannot use
its place again at once, and the rate of failed logins is limited as well.

An IPv6 address counts as its /64. Every table has a limit: addresses with connections are limited by max-connections,
the others are forgotten, the oldest first.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.proxy.listener.addresses import Group, Networks, group_of
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from shoal.proxy.config.security import AccessSettings
    from shoal.proxy.config.settings import Limits, ListenerSettings
    from shoal.proxy.net.turns import Turns

__all__ = [
    "BURST_SECONDS",
    "OF_AN_ADDRESS",
    "REFUSALS",
    "REPORT_SECONDS",
    "Admission",
    "Guest",
    "Refusals",
    "Strangers",
]

IDLE_ADDRESSES: Final = 10_000  # addresses without a connection whose rate is remembered; ~250 bytes each
FAILED_SECONDS: Final = 1.0  # a stranger that ended without a login counts for so long
BURST_SECONDS: Final = 5.0  # an address that was quiet may open so many seconds' worth of connections at once
REPORT_SECONDS: Final = 10.0  # between two log lines for one cause


OF_AN_ADDRESS: Final = frozenset(
    {
        CloseCause.ADDRESS_REFUSED,
        CloseCause.ADDRESS_FULL,
        CloseCause.TOO_FAST,
        CloseCause.ADDRESS_UNAUTHENTICATED,
    }
)
REFUSALS: Final = OF_AN_ADDRESS | frozenset(
    {
        CloseCause.REFUSED,
        CloseCause.UNAUTHENTICATED,
        CloseCause.PRINCIPAL_REFUSED,
        CloseCause.CLIENT_ID_REFUSED,
    }
)


class Strangers:
    """Connections of all listeners that have yet to log in."""

    def __init__(self, limits: Limits) -> None:
        self.use(limits)
        self._of: dict[Group, int] = {}
        self._failed: deque[tuple[float, Group]] = deque()  # they count until this time
        self.count = 0

    def use(self, limits: Limits) -> None:
        self._most = limits.unauthenticated
        self._most_per_address = limits.unauthenticated_per_address

    def refusal(self, group: Group | None, now: float) -> CloseCause | None:
        """Why one more cannot be accepted. None for an address that is not known yet."""
        while self._failed and self._failed[0][0] <= now:
            self._leave(self._failed.popleft()[1])
        if group is not None and self._of.get(group, 0) >= self._most_per_address:
            return CloseCause.ADDRESS_UNAUTHENTICATED
        return CloseCause.UNAUTHENTICATED if self.count >= self._most else None

    def enter(self, group: Group | None) -> None:
        self.count += 1
        if group is not None:
            self._of[group] = self._of.get(group, 0) + 1

    def leave(self, group: Group | None, failed_at: float | None = None) -> None:
        if failed_at is not None and group is not None:
            self._failed.append((failed_at + FAILED_SECONDS, group))
        else:
            self._leave(group)

    def _leave(self, group: Group | None) -> None:
        self.count -= 1
        if group is not None:
            self._of[group] -= 1
            if not self._of[group]:
                del self._of[group]


class _Address:
    """One address of a listener."""

    __slots__ = ("at", "connections", "tokens")

    def __init__(self, tokens: float, now: float) -> None:
        self.connections = 0
        self.tokens = tokens  # new connections that it may open at once
        self.at = now


class Admission:
    """The decisions of one listener."""

    def __init__(self, settings: ListenerSettings, strangers: Strangers, idle_addresses: int = IDLE_ADDRESSES) -> None:
        self.use(settings)
        self._idle_addresses = idle_addresses
        self._addresses: dict[Group, _Address] = {}  # with connections
        self._idle: OrderedDict[Group, _Address] = OrderedDict()  # without, the oldest first
        self.strangers = strangers
        self.connections = 0

    def use(self, settings: ListenerSettings) -> None:
        """From now on; clients that are connected stay."""
        access: AccessSettings = settings.access
        self._allowed = Networks(access.addresses)
        self._most = settings.max_connections
        self._most_per_address = access.connections_per_address
        self._rate = access.new_connections_per_second
        self._burst = max((self._rate or 0.0) * BURST_SECONDS, 1.0)
        self._counts_addresses = self._most_per_address is not None or self._rate is not None

    def admit(self, host: str | None, now: float, *, stranger: bool) -> Guest | CloseCause:
        """None: the address is that of a load balancer, and the client's own follows (`Guest.comes_from`)."""
        if self.connections >= self._most:
            return CloseCause.REFUSED
        group = None if host is None else group_of(host)
        refusal = None if host is None or group is None else self._address_refusal(host, group, now)
        if refusal is None and stranger:
            refusal = self.strangers.refusal(group, now)
        if refusal is not None:
            return refusal
        self.connections += 1
        guest = Guest(self, group)
        if group is not None:
            guest._counted = self._enter(group, now)
        if stranger:
            guest.is_stranger = True
            self.strangers.enter(group)
        return guest

    def allows(self, host: str) -> bool:
        """By the list of addresses alone."""
        return not self._allowed or host in self._allowed

    def _address_refusal(self, host: str, group: Group, now: float) -> CloseCause | None:
        if not self.allows(host):
            return CloseCause.ADDRESS_REFUSED
        if not self._counts_addresses:
            return None
        address = self._addresses.get(group) or self._idle.get(group)
        if address is None:
            return None
        if self._most_per_address is not None and address.connections >= self._most_per_address:
            return CloseCause.ADDRESS_FULL
        if self._rate is not None:
            address.tokens = min(self._burst, address.tokens + (now - address.at) * self._rate)
            address.at = now
            if address.tokens < 1.0:
                if group in self._idle:
                    self._idle.move_to_end(group)
                return CloseCause.TOO_FAST
        return None

    def _enter(self, group: Group, now: float) -> bool:
        """-> whether the address counts."""
        if not self._counts_addresses:
            return False
        address = self._addresses.get(group)
        if address is None:
            address = self._addresses[group] = self._idle.pop(group, _Address(self._burst, now))
        address.connections += 1
        address.tokens -= 1.0
        return True

    def _leave(self, group: Group | None, *, counted: bool) -> None:
        self.connections -= 1
        if group is None or not counted:
            return
        address = self._addresses[group]
        address.connections -= 1
        if not address.connections:
            del self._addresses[group]
            if self._rate is not None:
                self._idle[group] = address
                if len(self._idle) > self._idle_addresses:
                    self._idle.popitem(last=False)


class Guest:
    """One accepted connection. `turns`: of the port that accepted it, with several workers."""

    __slots__ = ("_admission", "_counted", "_group", "is_stranger", "login_by", "turns")

    def __init__(self, admission: Admission, group: Group | None) -> None:
        self._admission = admission
        self.turns: Turns | None = None
        self._group = group
        self._counted = False  # for its address
        self.is_stranger = False
        self.login_by = math.inf  # when a stranger's time is over

    def comes_from(self, host: str, now: float) -> CloseCause | None:
        """The client's own address, from a load balancer's PROXY protocol header; -> why it is refused."""
        admission, group = self._admission, group_of(host)
        refusal = admission._address_refusal(host, group, now)
        if refusal is None and self.is_stranger:
            admission.strangers.leave(self._group)
            refusal = admission.strangers.refusal(group, now)
            admission.strangers.enter(group if refusal is None else self._group)
        if refusal is not None:
            return refusal
        self._counted = admission._enter(group, now)
        self._group = group
        return None

    def enter(self, turns: Turns | None) -> None:
        if turns is not None:
            self.turns = turns
            turns.entered()

    def logged_in(self) -> None:
        if self.is_stranger:
            self.is_stranger = False
            self._admission.strangers.leave(self._group)

    def ended(self, now: float, *, by_broker: bool = False) -> None:
        """`by_broker`: it could not log in because its broker is unreachable."""
        if self.is_stranger:
            self.is_stranger = False
            self._admission.strangers.leave(self._group, None if by_broker else now)
        self._admission._leave(self._group, counted=self._counted)
        if self.turns is not None:
            self.turns.left()


class RefusalLine(NamedTuple):
    """`connections`: since the last line of this cause. `peer`: the last of them. `setting`: that refuses them."""

    cause: CloseCause
    connections: int
    peer: str
    setting: str

    @property
    def text(self) -> str:
        number = "one connection" if self.connections == 1 else f"{self.connections:,} connections, the last"
        return f"refused {number} from {self.peer}: {self.cause} ({self.setting})"


class Refusals:
    """Refused connections that the log has yet to show: at most one line per cause in `REPORT_SECONDS`."""

    def __init__(self, settings: ListenerSettings, limits: Limits) -> None:
        self.use(settings, limits)
        self._counts: dict[CloseCause, int] = {}  # since the last line
        self._last: dict[CloseCause, tuple[str, str]] = {}  # peer and setting: a reload may change that before the line
        self._logged_at: dict[CloseCause, float] = {}

    def use(self, settings: ListenerSettings, limits: Limits) -> None:
        access = settings.access
        self._settings = {
            CloseCause.REFUSED: f"max-connections = {settings.max_connections}",
            CloseCause.ADDRESS_REFUSED: "access.addresses",
            CloseCause.ADDRESS_FULL: f"access.connections-per-address = {access.connections_per_address}",
            CloseCause.TOO_FAST: f"access.new-connections-per-second = {access.new_connections_per_second}",
            CloseCause.UNAUTHENTICATED: f"limits.unauthenticated = {limits.unauthenticated}",
            CloseCause.ADDRESS_UNAUTHENTICATED: (
                f"limits.unauthenticated-per-address = {limits.unauthenticated_per_address}"
            ),
            CloseCause.PRINCIPAL_REFUSED: "access.principals",
            CloseCause.CLIENT_ID_REFUSED: "access.client-ids",
        }

    def note(self, cause: CloseCause, peer: str) -> None:
        """Count it. `peer`: an address, and what else the log should show."""
        self._counts[cause] = self._counts.get(cause, 0) + 1
        self._last[cause] = peer, self._settings[cause]

    def due(self, now: float) -> list[RefusalLine]:
        """What to log now."""
        lines = []
        for cause, count in list(self._counts.items()):
            logged_at = self._logged_at.get(cause)
            if logged_at is not None and now < logged_at + REPORT_SECONDS:
                continue
            del self._counts[cause]
            self._logged_at[cause] = now
            lines.append(RefusalLine(cause, count, *self._last[cause]))
        return lines
