from __future__ import annotations

from typing import Any

from shoal.proxy.workers.documents import joined_clients, joined_readiness, joined_status


def client(client_id: str = "app", **values: Any) -> dict[str, Any]:
    return {
        "listener": "l",
        "client_id": client_id,
        "host": "10.0.0.1",
        "principal": None,
        "software": None,
        "software_version": None,
        "connections": 1,
        "opened": 2,
        "first_seen": "2026-01-02",
        "last_seen": "2026-01-03",
        "requests": 10,
        "received_bytes": 100,
        "sent_bytes": 1000,
        "blocks_kafka_4": False,
        "blocking": [],
        "apis": [{"api": "Fetch", "oldest": 4, "newest": 12}],
        "other_apis": False,
        **values,
    }


def test_a_client_of_two_workers_is_one_row() -> None:
    old = {"api": "Produce", "oldest": 2, "newest": 2}
    more = client(
        first_seen="2026-01-01",
        blocks_kafka_4=True,
        blocking=["Produce v2"],
        apis=[{"api": "Fetch", "oldest": 3, "newest": 11}, old],
    )
    found = joined_clients(
        {1: {"clients": [client(), client("other")], "others": None}, 2: {"clients": [more], "others": None}}
    )
    joined, other = found["clients"]
    assert joined == client(
        connections=2,
        opened=4,
        requests=20,
        received_bytes=200,
        sent_bytes=2000,
        first_seen="2026-01-01",
        blocks_kafka_4=True,
        blocking=["Produce v2"],
        apis=[{"api": "Fetch", "oldest": 3, "newest": 12}, old],
        workers=[1, 2],
    )
    assert other == client("other", workers=[1])
    assert found["others"] is None


def test_forgotten_clients_are_added() -> None:
    forgotten = {"clients": [], "others": client(clients=7)}
    found = joined_clients({1: forgotten, 2: forgotten})
    assert (found["others"]["clients"], found["others"]["requests"]) == (14, 20)


def readiness(state: str = "serving", cluster: str | None = None) -> dict[str, Any]:
    ready = state == "serving" and cluster is None
    return {"ready": ready, "state": state, "clusters": {"c": cluster}, "listeners": {"l": None}}


def test_all_workers_must_be_ready() -> None:
    own = readiness()
    assert joined_readiness(own, {1: readiness(), 2: readiness()})["ready"]
    for worker in (readiness("draining"), readiness(cluster="refused"), "it does not answer"):
        assert not joined_readiness(own, {1: readiness(), 2: worker})["ready"]
    assert joined_readiness(own, {1: "gone", 2: readiness("starting")})["workers"] == {
        "1": "gone",
        "2": "its state is starting",
    }
    assert joined_readiness(own, {1: readiness(cluster="refused")})["clusters"] == {"c": "refused"}


def listener(**values: Any) -> dict[str, Any]:
    return {"name": "l", "connections": 0, "ports": {}, "states": {}, **values}


def cluster(**values: Any) -> dict[str, Any]:
    return {"name": "c", "id": None, "last_connect_failed": None, "multi_batch": {}, **values}


def test_a_listeners_facts_are_the_supervisors_and_what_only_workers_know() -> None:
    own = {"listeners": [listener(ports={"1": 9}, connections=5)], "clusters": [cluster()]}
    workers = [
        {
            "listeners": [listener(ports={}, connections=n, states={"open": n}, lanes=n, flows=[n], any=n > 2)],
            "clusters": [cluster(id="x", multi_batch={str(n): "stores"}, last_connect_failed="no" if n == 3 else None)],
        }
        for n in (2, 3)
    ]
    found = joined_status(own, workers, [{"worker": 1}])
    assert found["listeners"] == [
        listener(ports={"1": 9}, connections=5, states={"open": 5}, lanes=5, flows=[2, 3], any=False)
    ]
    assert found["clusters"] == [cluster(id="x", multi_batch={"2": "stores", "3": "stores"}, last_connect_failed="no")]
    assert found["workers"] == [{"worker": 1}]
