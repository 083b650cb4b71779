"""The claim checks of one produce request: their batches, or what must be read from which source first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.unwrap.findings import TRY_AGAIN
from shoal.protocol.shallow.unwrap.plan import MAX_OUTER_BYTES, Refused
from shoal.protocol.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.proxy.shallow.claims.background_reads import Found
    from shoal.proxy.shallow.claims.claim_checks import ClaimChecks

__all__ = ["Redemption"]


class Redemption:
    """`find` is for `plan_record_set`; what it has not found is in `missing` then, with the source that may have it.

    `checks`: those of the wrapping listeners that are paired now; `have_left`: the clusters of those that were, by id
    and name. `again`: what was read again for this request.
    """

    def __init__(
        self, checks: Sequence[ClaimChecks], again: Mapping[EnvelopeKey, Found], have_left: Collection[str | None]
    ) -> None:
        self.missing: dict[EnvelopeKey, ClaimChecks] = {}
        self._checks = checks
        self._again = again
        self._have_left = have_left
        self._room = MAX_OUTER_BYTES - sum(key.payload for key in again)

    def find(self, key: EnvelopeKey) -> Found | None:
        found = self._again.get(key)
        for checks in self._checks:
            found = found or checks.kept.find(key, trio.current_time())
        if found is not None:
            return found
        source = self._source(key)
        if source is None:
            what = f"{key}: a claim check for a cluster that is not the source of a listener with this pair"
            has_left = key.cluster in self._have_left or None in self._have_left
            return Refused(error_code=TRY_AGAIN if has_left else ErrorCode.INVALID_RECORD, message=what)
        if key not in self.missing:
            self._room -= key.payload
        if self._room < 0:
            what = f"more than {MAX_OUTER_BYTES} bytes of claim checks must be read from the source again"
            return Refused(error_code=ErrorCode.MESSAGE_TOO_LARGE, message=what)
        self.missing[key] = source
        return None

    def _source(self, key: EnvelopeKey) -> ClaimChecks | None:
        """The latest, if a listener is being replaced. One whose cluster is not known yet may be any."""
        known = [checks for checks in self._checks if checks.is_of(key)]
        return next(reversed(known or [checks for checks in self._checks if checks.may_have(key)]), None)
