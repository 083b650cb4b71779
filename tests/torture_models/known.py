"""Schedules that once failed, found and shortened by the models, by the fault that they show.

`OPEN` names the faults not yet fixed, and what random schedules must leave out to find others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture_models.replicas import Sets
from tests.torture_models.schedules import Schedule
from tests.torture_models.world import Config

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FAULTS", "OPEN"]

FAULTS: Mapping[str, Schedule] = {
    # issue 14, 1.1: a leader moves between a broker of Produce v12 (names) and one of v13 (topic ids)
    "two identities": Schedule(
        Config(versions=(13, 12, 13)),
        (
            ("lead_again", 10, 0),
            ("fetch", 0, 23),
            ("send", 0, 0),
            ("append", 0, 0),
            ("serve", 0, 0),
            ("upgrade", 10, 0),
        ),
    ),
    "two identities, an idempotent mirror": Schedule(
        Config(idempotent=True, in_flight=5, versions=(12, 12, 12), batches=4),
        (
            ("fetch", 0, 0),
            ("fetch", 0, 2),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("serve", 0, 0),
            ("upgrade", 0, 0),
            ("upgrade", 10, 3),
        ),
    ),
    # 1.2: a follower has part of a set when it becomes the leader
    "a prefix of a set": Schedule(
        Config(partitions=2, sets=Sets.AGENT),
        (
            ("fetch", 0, 3),
            ("send", 0, 0),
            ("append", 0, 0),
            ("append", 0, 0),
            ("copy", 10, 0),
            ("elect", 10, 0),
        ),
    ),
    "a prefix of a set, Kafka's own check": Schedule(
        Config(in_flight=5, sets=Sets.STOCK_CHECK, batches=4),
        (
            ("fetch", 0, 10),
            ("send", 0, 0),
            ("append", 0, 0),
            ("append", 0, 0),
            ("copy", 7, 0),
            ("elect", 7, 0),
        ),
    ),
    # 1.4: two sources, one target partition; the other's request discards the doubt
    "two mirrors": Schedule(
        Config(mirrors=2, shared=True, batches=4),
        (
            ("fetch", 1, 2),
            ("elect", 0, 0),
            ("send", 3, 2),
            ("append", 0, 0),
            ("cut", 0, 2),
        ),
    ),
    # 1.6: raw batches before the first envelope, several in flight; all are resent
    "raw before the first envelope": Schedule(
        Config(idempotent=True, in_flight=5, batches=4, max_message_bytes=150),
        (
            ("fetch", 0, 28),
            ("fetch", 0, 14),
            ("send", 0, 0),
            ("leave", 0, 0),
        ),
    ),
    # a batch to be cut, followed by one in flight that may be appended: a final error for the mirror
    "too large, and a leader moves": Schedule(
        Config(in_flight=5, partitions=2, batches=12, max_message_bytes=150),
        (
            ("fetch", 3, 3),
            ("send", 0, 0),
            ("append", 0, 0),
            ("serve", 0, 0),
            ("serve", 0, 0),
            ("elect", 7, 0),
        ),
    ),
    # an idempotent mirror's set of more batches than a broker remembers, appended, and its answer lost
    "a set of six pieces": Schedule(
        Config(
            idempotent=True, in_flight=5, partitions=2, versions=(12, 12, 12), sets=Sets.AGENT, max_message_bytes=150
        ),
        (
            ("fetch", 0, 19),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("serve", 0, 0),
            ("append", 0, 0),
            ("cut", 0, 3),
        ),
    ),
    # raw batches in flight before an envelope of four; all answers are lost, and the broker remembers five batches
    "raw in flight before the first envelope": Schedule(
        Config(idempotent=True, in_flight=5, versions=(12, 12, 12), sets=Sets.AGENT, max_message_bytes=150),
        (
            ("fetch", 0, 30),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("send", 0, 0),
            ("fetch", 0, 19),
            ("serve", 0, 2),
            ("serve", 0, 0),
            ("send", 0, 0),
            ("cut", 0, 7),
        ),
    ),
    # two mirrors write one partition, and each repeats a raw batch that is too large
    "large batches of two mirrors": Schedule(
        Config(mirrors=2, shared=True, versions=(12, 12, 12), max_message_bytes=150, repeats_large=True),
        (
            ("fetch", 0, 30),
            ("fetch", 3, 26),
        ),
    ),
    # a source answers when the mirror that waited has begun again, and is ahead
    "a claim check that is read late": Schedule(
        Config(batches=4, kept_bytes=1 << 20),
        (
            ("fetch", 0, 0),
            ("lose_kept", 0, 0),
            ("reach", 0, 2),
            ("send", 0, 0),
            ("restart_mirror", 0, 0),
            ("fetch", 0, 0),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("serve", 0, 0),
            ("fetch", 0, 1),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("serve", 0, 0),
            ("reach", 0, 0),
            ("serve", 0, 2),
        ),
    ),
    # part of a batch is appended; its mirror begins again, and sends what came before, and then the same batch
    "progress of a batch before a restart": Schedule(
        Config(batches=4, max_message_bytes=150, repeats_large=True),
        (
            ("fetch", 0, 24),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("fetch", 0, 26),
            *[("send", 0, 0), ("serve", 0, 0)] * 4,
            ("lead_again", 1, 0),
            ("serve", 0, 0),
            ("serve", 0, 0),
            ("restart_mirror", 0, 0),
            ("fetch", 0, 24),
            ("send", 0, 0),
            ("serve", 0, 0),
            ("fetch", 0, 26),
            *[("send", 0, 0), ("serve", 0, 0)] * 7,
        ),
    ),
}

# fault -> its item in issue 14, and the features that cause it (schedules.FEATURES)
OPEN: Mapping[str, tuple[str, tuple[str, ...]]] = {}
