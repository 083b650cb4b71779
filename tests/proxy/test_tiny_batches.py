"""Batches below min-batch-bytes: left to the mirror, or wrapped where the target is proven to take many of them at once."""

from __future__ import annotations

from tests.proxy.shallow_brokers import ORDERS
from tests.proxy.shallow_mirror import COPY, Mirror, log, logs
from tests.proxy.shallow_proofs import Vouched, vouch
from tests.proxy.shallow_rig import shallow_rig


async def test_tiny_batches_stay_raw_until_the_target_is_proven(clock: object) -> None:
    async with shallow_rig() as r:
        proof = Vouched()
        proof.holds = False
        vouch(r, proof, topic=COPY)
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(9)]
        mirror = await Mirror.of(r, node=1)
        assert [await mirror.copy() for _ in range(4)] == [False] * 4
        proof.holds = True
        assert [await mirror.copy() for _ in range(3)] == [False, True, True]
        before = len(r.target.requests)
        proof.holds = False
        assert [await mirror.copy() for _ in range(2)] == [True, False]
        assert len(r.target.requests) == before + 3, "an envelope that is under way goes one by one"
        assert mirror.copied == logs(9)
