"""What a mirror gets of the source's answer, once it is known where the copy ends."""

from collections.abc import Sequence

from shoal.protocol.records.scan import ScannedSet
from shoal.protocol.shallow.same_offsets.covers import Covered, cover, cover_nothing
from shoal.protocol.shallow.same_offsets.place import Place
from shoal.protocol.shallow.wrap.runs import WrapContext
from shoal.protocol.wire.crc import Buffer

__all__ = ["follow"]


def follow(
    place: Place, frame: Buffer, scanned: ScannedSet | None, aborted: Sequence[tuple[int, int]], context: WrapContext
) -> Covered | None:
    """`scanned`: the record set in `frame`; None: it is empty. -> None: nothing now."""
    since = place.since(place.source_end)
    if scanned is None:
        if not since.covered < place.source_start == place.source_end:
            return None  # there may have been no room for a record
        found = cover_nothing(since, context)
    elif scanned.is_readable and not len(scanned):
        return None  # there was no room for a whole batch
    else:
        found = cover(frame, scanned, aborted, since, context)
    if not found.compares and place.go_back():
        return None
    if found.problem is None or found.wrapped.envelopes:
        place.gave(found.position, found.wrapped.next_offset)
    return found
