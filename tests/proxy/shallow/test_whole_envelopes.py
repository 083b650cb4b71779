"""How much a wrap listener requests of one partition: enough for whole envelopes."""

from __future__ import annotations

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.proxy.config.settings import KIB, MIB, ShallowSettings
from tests.support.shallow.world import context
from tests.support.shallow.wrapping import wrap_record_set


@pytest.mark.parametrize(
    ("most", "run_limit", "asked"),
    [
        (MIB, 512 * KIB, 960 * KIB),
        (512 * KIB, 512 * KIB, 448 * KIB),
        (MIB, 2 * MIB, MIB),
        (9 * MIB, 4 * MIB, 7680 * KIB),
    ],
)
def test_whole_envelopes_are_asked_for(most: int, run_limit: int, asked: int) -> None:
    assert ShallowSettings(partition_max_bytes=most, run_limit=run_limit).partition_limit == asked


@pytest.mark.parametrize("size", [900, 32 * KIB, 60 * KIB])
def test_no_short_envelope_is_left_over(size: int) -> None:
    settings = ShallowSettings()
    batch = encode_batch([NewRecord(1, None, bytes(size))])
    count = settings.partition_limit // len(batch)
    log = b"".join(offset.to_bytes(8, "big") + batch[8:] for offset in range(count))
    wrapped = wrap_record_set(log, 0, len(log), context(run_limit=settings.run_limit))
    assert [key.payload > settings.run_limit // 2 for key in wrapped.envelopes] == [True, True]
