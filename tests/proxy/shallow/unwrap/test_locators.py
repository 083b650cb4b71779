"""Records that look like locators, before a broker without the agent."""

from __future__ import annotations

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch, open_batch
from shoal.protocol.shallow.locator import locator_batch, read_locator
from tests.support.shallow.batches import NONE
from tests.support.shallow.rig import shallow_rig

_PREFIX = b"shoal.same-offsets/"
pytestmark = pytest.mark.usefixtures("lane")


def forged() -> NewRecord:
    """A client's own record with the header of a locator."""
    name = name_in(locator_batch(bytes(16), 0))
    return NewRecord(1_700_000_000_000, b"key", b"the client's", ((name, b""),))


def name_in(batch: bytes) -> bytes:
    """The prefix, 32 hex digits, a slash, 8 hex digits."""
    at = batch.index(_PREFIX)
    return batch[at : at + len(_PREFIX) + 32 + 1 + 8]


async def test_a_record_that_only_looks_like_a_locator_is_produced_as_it_is() -> None:
    record = forged()
    found = read_locator(record.key, record.value, record.headers)
    assert found is not None
    assert not found.is_intact
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(encode_batch([record]))
        assert list((await client.answers()).values()) == [(NONE, 0)]
        assert [one.value for one in r.target.log()] == [b"the client's"]


async def test_a_locator_of_another_process_is_never_stored() -> None:
    """The broker has no agent: the mirror's record counts as stored, and is not."""
    async with shallow_rig() as r:
        client = await r.producer()
        await client.produce(locator_batch(bytes(range(16)), 0))
        ((error, _),) = (await client.answers()).values()
        assert error == NONE
        assert r.target.log() == []


async def test_ordinary_records_beside_a_locator_are_stored_alone() -> None:
    plain = [NewRecord(1, b"key", b"%d" % number) for number in range(2)]
    made = locator_batch(bytes(range(16)), 0)
    (locator,) = open_batch(made, 0, len(made), limit=1000)[1]
    ours = NewRecord(0, None, locator.value, locator.headers)
    async with shallow_rig() as r:
        client = await r.producer()
        for _ in range(2):
            await client.produce(encode_batch([plain[0], ours, plain[1]]))
            assert list((await client.answers()).values()) == [(NONE, -1)]
        assert r.target.log() == plain, "a retry appends nothing"
