"""Our error codes against Kafka's own: the main method of `Errors` prints its table."""

import re
import subprocess

import pytest

from shoal.protocol.wire.error_codes import ErrorCode, error_name
from tests.support.kafka.schemas import KAFKA_VERSIONS, kafka_lib

NEWEST, *OLDER = KAFKA_VERSIONS


def kafkas_codes(kafka: str) -> dict[str, int]:
    command = ["java", "-cp", f"{kafka_lib(kafka)}/*", "org.apache.kafka.common.protocol.Errors"]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"<tr><td>(\w+)</td><td>(-?\d+)</td>", table)
    assert len(rows) > 100
    return {name: int(code) for name, code in rows}


def test_codes_are_those_of_the_newest_kafka() -> None:
    assert {member.name: member.value for member in ErrorCode} == kafkas_codes(NEWEST)


@pytest.mark.parametrize("kafka", OLDER)
def test_older_kafkas_have_a_part_of_them(kafka: str) -> None:
    assert kafkas_codes(kafka).items() <= {member.name: member.value for member in ErrorCode}.items()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (87, "error 87 (INVALID_RECORD)"),
        (ErrorCode.NONE, "error 0 (NONE)"),
        (999, "error 999"),
        (-32768, "error -32768"),
    ],
)
def test_a_code_has_its_name_beside_it(code: int, name: str) -> None:
    assert error_name(code) == name
