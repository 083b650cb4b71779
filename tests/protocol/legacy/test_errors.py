"""No client receives a code that it does not know: against the codes of each release, copied from its sources."""

import pytest

from shoal.protocol.legacy.errors import CLIENT_VERSIONS, Release, downgrade_error, newest_spoken, spoken_since
from shoal.protocol.schema.api import ApiKey

# The constants of common/protocol/Errors.java at the tags 0.8.2.2, 0.9.0.1, 0.10.0.1, 0.10.1.1, 0.10.2.2, 0.11.0.2, and
# of kafka/common/ErrorMapping.scala at 0.8.2.2 and 0.9.0.1 (the only one with 4 there).
JAVA_0_8_2 = {-1, 0, 1, 2, 3, 5, 6, 7, 10, 12, 13, 17, 18, 19, 20}
SCALA_0_8_2 = {-1, *range(21)}
KNOWN = {
    Release.V0_8_2: JAVA_0_8_2 | SCALA_0_8_2,
    Release.V0_9: {-1, *range(32)},
    Release.V0_10_0: {-1, *range(36)},
    Release.V0_10_1: {-1, *range(44)},
    Release.V0_10_2: {-1, *range(45)},
    Release.V0_11: {-1, *range(56)},
}
NEWEST_CODE = 133  # of Kafka 4.3, plus a few future ones
SAID = [(key, version) for key in CLIENT_VERSIONS for version in range(newest_spoken(key) + 1)]


@pytest.mark.parametrize(("key", "version"), SAID)
def test_every_code_becomes_one_that_the_client_knows(key: int, version: int) -> None:
    since = spoken_since(key, version)
    assert since is not None
    for code in (-32768, -2, *range(-1, NEWEST_CODE + 20)):
        said = downgrade_error(key, version, code)
        assert said in KNOWN[since]
        assert said == code or code not in KNOWN[since]
        assert (said == 0) == (code == 0)


@pytest.mark.parametrize("release", Release)
def test_a_client_that_has_shown_more_is_told_more(release: Release) -> None:
    for code in range(-1, NEWEST_CODE):
        said = downgrade_error(ApiKey.OFFSET_FETCH, 1, code, release)
        assert said in KNOWN[release]
        assert said == code or code not in KNOWN[release]


@pytest.mark.parametrize(
    ("key", "version", "code", "said"),
    [
        (ApiKey.FETCH, 0, 56, 6),  # the leader's disk failed: look for the new leader
        (ApiKey.PRODUCE, 2, 56, 6),
        (ApiKey.FETCH, 3, 76, 2),  # zstd: an error that stops the client
        (ApiKey.FETCH, 1, 74, 6),
        (ApiKey.PRODUCE, 1, 87, 2),
        (ApiKey.FETCH, 2, 100, 3),
        (ApiKey.FETCH, 0, 29, -1),  # 0.8.2 has no authorization
        (ApiKey.FETCH, 1, 29, 29),
        (ApiKey.OFFSET_COMMIT, 1, 22, -1),
        (ApiKey.OFFSET_COMMIT, 2, 22, 22),
        (ApiKey.OFFSET_COMMIT, 2, 113, 22),
        (ApiKey.OFFSET_FETCH, 1, 88, 14),
        (ApiKey.LIST_OFFSETS, 0, 35, -1),
        (ApiKey.CREATE_TOPICS, 0, 44, 42),
        (ApiKey.CREATE_TOPICS, 1, 44, 44),
        (ApiKey.DELETE_TOPICS, 0, 73, 42),
        (ApiKey.JOIN_GROUP, 0, 81, -1),
        (ApiKey.METADATA, 1, 72, 5),
    ],
)
def test_a_newer_code_is_said_as(key: int, version: int, code: int, said: int) -> None:
    assert downgrade_error(key, version, code) == said


def test_newer_versions_are_told_what_the_broker_says() -> None:
    assert downgrade_error(ApiKey.FETCH, 4, 76) == 76
    assert downgrade_error(ApiKey.API_VERSIONS, 3, 35) == 35
    assert downgrade_error(ApiKey.SHARE_FETCH, 0, 122) == 122


def test_releases_are_named_as_kafka_names_them() -> None:
    assert [str(release) for release in Release] == ["0.8.2", "0.9", "0.10.0", "0.10.1", "0.10.2", "0.11"]
