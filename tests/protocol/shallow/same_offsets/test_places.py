"""Which mirror gets a locator, when, and what it means when one comes back."""

from __future__ import annotations

from shoal.protocol.shallow.interlock.flow import Flow
from shoal.protocol.shallow.interlock.way_back import WayBack
from shoal.protocol.shallow.locator import LocatorRecord
from shoal.protocol.shallow.same_offsets.place import LOCATOR_SECONDS, Place, PlaceState
from shoal.protocol.shallow.same_offsets.places import MAX_FLOWS, STOPPED_SECONDS, Places
from shoal.protocol.wire.types import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
WAY = WayBack(1, "10.0.0.1", "connector-producer-a", "a.orders")


def flow(number: int = 1) -> Flow:
    return Flow(peer="10.0.0.1", client_id="mirror", token=number)


def asking(position: int = 0) -> Place:
    place = Place()
    place.ask(position)
    return place


def standing(place: Place) -> PlaceState:
    return place.standing


def back(places: Places, token: bytes, partition: int = 0, *, is_intact: bool = True) -> str | None:
    returned = places.returned(LocatorRecord(token, is_intact), partition, WAY)
    assert returned is not None
    return returned.why


def test_a_mirror_gets_one_locator_until_it_has_come_back() -> None:
    """If it does not produce through Shoal, its records are stored elsewhere."""
    places, mirror, one, two = Places(bytes(16)), flow(), asking(), asking()
    token = places.give(mirror, ONE, one, 0.0)
    assert not places.may_locate(mirror, TWO, two, 1.0)
    assert places.may_locate(flow(2), TWO, asking(), 1.0)
    assert back(places, token) is None
    assert places.may_locate(mirror, TWO, two, 1.0)


def test_one_that_does_not_come_back_is_given_again_later() -> None:
    places, mirror, place = Places(bytes(16)), flow(), asking()
    token = places.give(mirror, ONE, place, 0.0)
    places.renew(ONE, place, LOCATOR_SECONDS - 1)
    assert standing(place) is PlaceState.LOCATING
    places.renew(ONE, place, LOCATOR_SECONDS)
    assert places.may_locate(mirror, ONE, place, LOCATOR_SECONDS)
    assert places.give(mirror, ONE, place, LOCATOR_SECONDS) != token


def test_what_comes_another_way_proves_nothing() -> None:
    places, mirror = Places(bytes(16)), flow()
    for number, (partition, is_intact, word) in enumerate(((1, True, "keep partitions"), (0, False, "transform"))):
        place = asking()
        why = back(places, places.give(mirror, ONE, place, number), partition, is_intact=is_intact)
        assert why is not None
        assert word in why
    place = asking()
    token = places.give(mirror, ONE, place, 0.0)
    away = places.returned(LocatorRecord(token, is_intact=True), 0, WAY._replace(host="10.0.0.2"))
    assert away is not None
    assert "from 10.0.0.2" in (away.why or "")
    assert places.returned(LocatorRecord(bytes(16), is_intact=True), 0, WAY) is None


def test_a_stopped_partition_waits_and_is_said_once() -> None:
    places, mirror, place = Places(bytes(16)), flow(), asking()
    token = places.give(mirror, ONE, place, 0.0)
    returned = places.returned(LocatorRecord(token, is_intact=True), 0, WAY)
    assert returned is not None
    assert places.located(returned.given, token, 10, 0)
    assert standing(place) is PlaceState.KNOWN
    assert places.stop(ONE, "no agent", 0.0)
    places.renew(ONE, place, 0.0)
    assert standing(place) is PlaceState.UNKNOWN
    assert not places.may_locate(mirror, ONE, place, STOPPED_SECONDS - 1)
    assert places.may_locate(mirror, ONE, place, STOPPED_SECONDS)
    assert not places.stop(ONE, "no agent", STOPPED_SECONDS)
    stopped = places.appended(ONE)
    assert stopped is not None
    assert stopped.why == "no agent"
    assert places.stop(ONE, "no agent", STOPPED_SECONDS)


def test_of_too_many_stopped_partitions_all_are_located_again() -> None:
    places, mirror = Places(bytes(16), most=2), flow()
    partitions = [TopicPartition("orders", number) for number in range(4)]
    known = [asking() for _ in partitions]
    for partition, place in zip(partitions, known, strict=True):
        token = places.give(mirror, partition, place, 0.0)
        returned = places.returned(LocatorRecord(token, is_intact=True), partition.partition, WAY)
        assert returned is not None
        assert places.located(returned.given, token, 10, 0)
    for partition in partitions[:3]:
        places.stop(partition, "no agent", 0.0)
    assert places.stops.keys() == {partitions[2]}
    assert not any(places.is_current(partition, place) for partition, place in zip(partitions, known, strict=True))
    for partition, place in zip(partitions, known, strict=True):
        places.renew(partition, place, 0.0)
        assert places.is_current(partition, place)


def test_a_mirror_that_stays_is_known_however_often_others_restart() -> None:
    """What happens to its envelopes is of interest only as long as it is known."""
    places, stays, place = Places(bytes(16)), flow(0), asking()
    token = places.give(stays, ONE, place, 0.0)
    returned = places.returned(LocatorRecord(token, is_intact=True), 0, WAY)
    assert returned is not None
    assert places.located(returned.given, token, 10, 0)
    for number in range(1, 2 * MAX_FLOWS):
        assert not places.may_locate(stays, ONE, place, number)  # at each of its requests
        assert places.may_locate(flow(number), TWO, asking(), number)
    assert places.knows(stays.token)
    assert not places.knows(1)
