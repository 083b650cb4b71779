"""Targets: the conversations with legacy clients, both sides of them, and the answers that pass."""

from functools import partial
from itertools import chain

from shoal.protocol.legacy.answers import CHECKED, say_known
from shoal.protocol.legacy.errors import downgrade_error, newest_spoken
from shoal.protocol.legacy.translate import TRANSLATIONS, say_errors
from shoal.protocol.legacy.versions import UPSTREAM_VERSION, lower_minima
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.tables import MESSAGES
from tests.fuzz.decoders.frames import examples
from tests.fuzz.target import Target, padded

__all__ = ["TARGETS"]

_KEYS = sorted(TRANSLATIONS)
_PASSING = [
    (key, version) for key in sorted(CHECKED) for version in range(UPSTREAM_VERSION.get(key, 0), newest_spoken(key) + 1)
]
_SPLIT = b"\xff|\xff"


def _message(key: int, side: str, version: int, data: bytes) -> dict[str, object]:
    return decompose(MESSAGES[f"{API[key].name}{side}"], version, *padded(data))


def _converse(data: bytes) -> None:
    """The first byte chooses API and version; the request and all answers follow."""
    which, request, *answers = data[:1] or b"\0", *data[1:].split(_SPLIT)
    key = _KEYS[which[0] % len(_KEYS)]
    version = which[0] // len(_KEYS) % (UPSTREAM_VERSION[key])
    conversation = TRANSLATIONS[key](version, _message(key, "Request", version, request))
    try:
        question = next(conversation)
        for answer in chain(answers, [b""] * 3):
            compose(MESSAGES[f"{API[key].name}Request"], UPSTREAM_VERSION[key], question)
            question = conversation.send(_message(key, "Response", UPSTREAM_VERSION[key], answer))
    except StopIteration as end:
        said = end.value
        say_errors(said, partial(downgrade_error, key, version))
        compose(MESSAGES[f"{API[key].name}Response"], version, said)


def _conversations() -> list[bytes]:
    """Frames of every API and version, with one partition."""
    partition = {
        "PartitionIndex": 1,
        "Timestamp": 5,
        "MaxNumOffsets": 2,
        "CommittedOffset": 3,
        "CommittedMetadata": "m",
    }
    said = {"PartitionIndex": 1, "Offset": 7, "CommittedOffset": -1, "Metadata": "", "ErrorCode": 0}
    seeds = []
    for number, key in enumerate(_KEYS):
        for version in range(UPSTREAM_VERSION[key]):
            request = compose(MESSAGES[f"{API[key].name}Request"], version, _fitting(key, "Request", partition))
            answer = compose(
                MESSAGES[f"{API[key].name}Response"], UPSTREAM_VERSION[key], _fitting(key, "Response", said)
            )
            seeds.append(bytes([number + version * len(_KEYS)]) + _SPLIT.join([request, answer, answer, answer]))
    return seeds


def _fitting(key: int, side: str, partition: dict[str, object]) -> dict[str, object]:
    if key not in (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        return {}
    if key == ApiKey.OFFSET_FETCH and side == "Request":
        return {"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [1]}]}
    (topics,) = [field for field in MESSAGES[f"{API[key].name}{side}"].fields if field.name == "Topics"]
    (partitions,) = [field for field in topics.fields if field.name == "Partitions"]
    names = {field.name for field in partitions.fields}
    one = {name: value for name, value in partition.items() if name in names}
    return {"Topics": [{"Name": "t", "Partitions": [one]}]}


def _passing(data: bytes) -> None:
    key, version = _PASSING[(data[:1] or b"\0")[0] % len(_PASSING)]
    frame = data[1:]
    said = say_known(frame, key, version, partial(downgrade_error, key, version))
    assert len(said) == len(frame)


def _passing_seeds() -> list[bytes]:
    return [
        bytes([number]) + frame[1:]
        for number, (key, version) in enumerate(_PASSING)
        for frame in examples(f"{API[key].name}Response")
        if frame[0] == version
    ]


def _offer(data: bytes) -> None:
    lowered = lower_minima(data[1:], (data[:1] or b"\0")[0] % 5)
    assert len(lowered) == max(len(data) - 1, 0)


TARGETS = [
    Target("legacy.translate", _converse, _conversations),
    Target("legacy.answers", _passing, _passing_seeds),
    Target("legacy.versions", _offer, lambda: examples("ApiVersionsResponse")),
]
