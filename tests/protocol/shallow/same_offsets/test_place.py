"""What is asked for from the source, where its log does not have what the mirror or the copy suggests."""

from __future__ import annotations

from shoal.protocol.shallow.same_offsets.place import Place, PlaceState


def located(start: int, end: int, *, log_start: int, log_end: int) -> Place:
    """The source has the offsets `start` to `end`, the copy the others."""
    place = Place()
    place.ask(end)
    place.source_start, place.source_end = start, end
    place.give_locator(b"token", 0.0)
    place.locate(log_end, log_start)
    return place


def test_nothing_is_compared_that_the_source_has_deleted() -> None:
    """Everything that the copy has is gone at the source: to ask for the record before its end is out of range."""
    place = located(1000, 1000, log_start=0, log_end=1000)
    assert place.ask(place.position) == 1000
    assert not place.since(1000).compare


def test_the_last_batch_of_the_copy_is_compared() -> None:
    place = located(999, 1500, log_start=0, log_end=1000)
    assert place.ask(place.position) == 999
    assert place.since(1500).compare


def test_a_mirror_gets_the_offset_to_which_it_was_sent() -> None:
    """What was known of the source's log is old: with it, the mirror would be sent there again and again."""
    place = located(0, 1000, log_start=0, log_end=1000)
    assert place.ask(place.position) == 999
    place.forget()
    place.out_of_range()
    assert place.ask(3000) == 3000
    assert place.standing is PlaceState.UNKNOWN


def test_a_source_that_was_created_again_is_located_again() -> None:
    """It has more records than the copy, so the next offset is in range; and nothing is known of its log."""
    place = located(0, 1000, log_start=0, log_end=1000)
    place.read_from(b"one")
    place.gave(1001, 1000)
    place.read_from(b"one")
    assert place.ask(1001) == 1000

    place.read_from(b"two")
    assert place.ask(1001) == 1001
    assert place.standing is PlaceState.UNKNOWN
