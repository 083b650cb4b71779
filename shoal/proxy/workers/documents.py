"""The JSON pages of several workers, joined. Pure.

/status    the supervisor's own document (it has the ports, the certificates and the added counters), with what only
           workers know of their listeners and clusters, and a list of the workers
/clients   a client of several workers is one row
/readyz    ready if the supervisor and every worker are; else why not
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Document = dict[str, Any]

__all__ = ["joined_clients", "joined_readiness", "joined_status"]

_SUMS: Final = ("connections", "opened", "requests", "received_bytes", "sent_bytes")
_NAME: Final = ("listener", "client_id", "host", "principal", "software", "software_version")


def joined_status(own: Document, workers: Sequence[Document], rows: Sequence[Document]) -> Document:
    """`workers`: those that have answered; `rows`: one for each, also of those that have not."""
    listeners = [_listener(listener, workers) for listener in own["listeners"]]
    clusters = [_cluster(cluster, workers) for cluster in own["clusters"]]
    return {**own, "listeners": listeners, "clusters": clusters, "workers": list(rows)}


def _named(name: str, kind: str, workers: Iterable[Document]) -> list[Document]:
    return [row for worker in workers for row in worker[kind] if row["name"] == name]


def _listener(own: Document, workers: Sequence[Document]) -> Document:
    joined = {**own, "states": {}}
    known = own.keys() - {"states"}
    for found in _named(own["name"], "listeners", workers):
        for key, value in found.items():
            if key not in known:
                joined[key] = _both(joined[key], value) if key in joined else value
    return joined


def _both(one: Any, other: Any) -> Any:
    """Facts that each worker has for itself: numbers add up, lists follow one another."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _both(one[key], other[key]) if {key} <= one.keys() & other.keys() else value
                for key, value in {**one, **other}.items()}  # fmt: skip
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    if _is_number(one) and _is_number(other):
        return one + other
    return one


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cluster(own: Document, workers: Sequence[Document]) -> Document:
    found = _named(own["name"], "clusters", workers)
    proofs: Document = {}
    for document in found:
        proofs |= document["multi_batch"]
    return {
        **own,
        "id": _first([own["id"], *(document["id"] for document in found)]),
        "last_connect_failed": _first([document["last_connect_failed"] for document in (*found, own)]),
        "multi_batch": proofs,
    }


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def joined_readiness(own: Document, workers: Mapping[int, Document | str]) -> Document:
    """`workers`: what each has answered, or why it has not."""
    documents = [document for document in workers.values() if isinstance(document, dict)]
    joined = {
        part: {name: _first([document[part].get(name) for document in (own, *documents)]) for name in own[part]}
        for part in ("clusters", "listeners")
    }
    rows = {str(number): _why_not(document) for number, document in workers.items()}
    reasons = [*joined["clusters"].values(), *joined["listeners"].values(), *rows.values()]
    ready = own["state"] == "serving" and all(reason is None for reason in reasons)
    return {**own, "ready": ready, **joined, "workers": rows}


def _why_not(found: Document | str) -> str | None:
    if isinstance(found, str):
        return found
    return None if found["state"] == "serving" else f"its state is {found['state']}"


def joined_clients(workers: Mapping[int, Document]) -> Document:
    """Each row has the numbers of its workers."""
    rows: dict[tuple[object, ...], Document] = {}
    others: Document | None = None
    for number, found in workers.items():
        for row in found["clients"]:
            name = tuple(row[key] for key in _NAME)
            rows[name] = _row(rows.get(name), {**row, "workers": [number]})
        if found["others"] is not None:
            more = {**found["others"], "workers": [number]}
            count = more["clients"] + (0 if others is None else others["clients"])
            others = {**_row(others, more), "clients": count}
    return {"clients": list(rows.values()), "others": others}


def _row(one: Document | None, other: Document) -> Document:
    if one is None:
        return other
    blocking = list(dict.fromkeys([*one["blocking"], *other["blocking"]]))
    return {
        **one,
        **{key: one[key] + other[key] for key in _SUMS},
        "first_seen": min(one["first_seen"], other["first_seen"]),
        "last_seen": max(one["last_seen"], other["last_seen"]),
        "blocks_kafka_4": bool(blocking),
        "blocking": blocking,
        "apis": _apis([*one["apis"], *other["apis"]]),
        "other_apis": one["other_apis"] or other["other_apis"],
        "workers": [*one["workers"], *other["workers"]],
    }


def _apis(rows: Iterable[Document]) -> list[Document]:
    found: dict[str, Document] = {}
    for row in rows:
        known = found.setdefault(row["api"], dict(row))
        known["oldest"] = min(known["oldest"], row["oldest"])
        known["newest"] = max(known["newest"], row["newest"])
    return list(found.values())
