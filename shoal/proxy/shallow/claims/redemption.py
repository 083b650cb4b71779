"""The claim checks of one produce request: their batches, or what must be read from which source first.

Several listeners may be before one source, with different logins: each may be asked. MAX_OUTER_BYTES are read again for
a request, and what could not be read does not count, up to as much again: so it takes no room from the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.plan import Refused
from shoal.protocol.shallow.unwrap.plan_record_set import MAX_OUTER_BYTES
from shoal.protocol.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.proxy.shallow.claims.background_reads import Found
    from shoal.proxy.shallow.claims.claim_checks import ClaimChecks

__all__ = ["Redemption", "read_again"]


class Redemption:
    """`find` is for `plan_record_set`; what it has not found is in `missing` then, with the sources that may have it.

    `checks`: those of the wrapping listeners that are paired now; `have_left`: the clusters of those that were, by id
    and name. `again`: what was read again for this request.
    """

    def __init__(
        self, checks: Sequence[ClaimChecks], again: Mapping[EnvelopeKey, Found], have_left: Collection[str | None]
    ) -> None:
        self.missing: dict[EnvelopeKey, Sequence[ClaimChecks]] = {}
        self._checks = checks
        self._again = again
        self._have_left = have_left
        read = sum(key.payload for key, result in again.items() if not isinstance(result, Refused))
        self._room = min(MAX_OUTER_BYTES - read, 2 * MAX_OUTER_BYTES - sum(key.payload for key in again))

    def find(self, key: EnvelopeKey) -> Found | None:
        found = self._again.get(key)
        for checks in self._checks:
            found = found or checks.kept.find(key, trio.current_time())
        if found is not None:
            return found
        sources = self._sources(key)
        if not sources:
            what = f"{key}: a claim check for a cluster that is not the source of a listener with this pair"
            has_left = key.cluster in self._have_left or None in self._have_left
            return Refused(error_code=TRY_AGAIN if has_left else ErrorCode.INVALID_RECORD, message=what)
        if key not in self.missing:
            self._room -= key.payload
        if self._room < 0:
            what = f"more than {MAX_OUTER_BYTES} bytes of claim checks must be read from the source again: others first"
            return Refused(error_code=TRY_AGAIN, message=what)
        self.missing[key] = sources
        return None

    def _sources(self, key: EnvelopeKey) -> Sequence[ClaimChecks]:
        """The latest first, if a listener is being replaced. One whose cluster is not known yet may be any."""
        known = [checks for checks in self._checks if checks.is_of(key)]
        return (known or [checks for checks in self._checks if checks.may_have(key)])[::-1]


async def read_again(wanted: Mapping[EnvelopeKey, Sequence[ClaimChecks]], deadline: float) -> dict[EnvelopeKey, Found]:
    """What one source refuses, another is asked for; it is refused permanently only if all of them do."""
    found: dict[EnvelopeKey, Found] = {}
    while wanted:
        asked: dict[ClaimChecks, list[EnvelopeKey]] = {}
        for key, (checks, *_) in wanted.items():
            asked.setdefault(checks, []).append(key)
        for checks, keys in asked.items():
            read = await checks.read(keys, deadline)
            found |= {
                key: result for key, result in read.items() if not (_is_for_now(found.get(key)) and _is_refused(result))
            }
        wanted = {key: of[1:] for key, of in wanted.items() if len(of) > 1 and _is_refused(found[key])}
    return found


def _is_refused(found: Found | None) -> bool:
    return isinstance(found, Refused)


def _is_for_now(found: Found | None) -> bool:
    return isinstance(found, Refused) and found.error_code == TRY_AGAIN
