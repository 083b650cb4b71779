"""The lines for the mirror, in the three forms in which it is run."""

from __future__ import annotations

import json

import pytest

from shoal.proxy.settings import Address
from shoal.proxy.wiring import FORMS, Wiring, connect, dedicated, strimzi, wiring_lines

WIRING = Wiring(source=Address("shoal", 19092), target=Address("::1", 29092), source_alias="east", target_alias="west")


def test_dedicated_lines_are_properties() -> None:
    lines = [line for line in dedicated(WIRING).splitlines() if not line.startswith("#")]

    assert lines == [
        "east.consumer.bootstrap.servers = shoal:19092",
        "west.producer.bootstrap.servers = [::1]:29092",
        "west.producer.compression.type = none",
        "emit.heartbeats.enabled = false",
    ]


def test_connect_lines_are_json_with_converters() -> None:
    config = json.loads(connect(WIRING))

    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    assert config == {
        "source.consumer.bootstrap.servers": "shoal:19092",
        "producer.override.bootstrap.servers": "[::1]:29092",
        "producer.override.compression.type": "none",
        "key.converter": converter,
        "value.converter": converter,
        "header.converter": converter,
    }


def test_strimzi_lines_are_a_fragment_of_the_v1_resource() -> None:
    assert strimzi(Wiring(source=Address("shoal", 19092), target=Address("shoal", 29092))) == (
        "apiVersion: kafka.strimzi.io/v1\n"
        "kind: KafkaMirrorMaker2\n"
        "spec:\n"
        "  target:\n"
        "    alias: B\n"
        "  mirrors:\n"
        "    - source:\n"
        "        alias: A\n"
        "      sourceConnector:\n"
        "        config:\n"
        '          source.consumer.bootstrap.servers: "shoal:19092"\n'
        '          producer.override.bootstrap.servers: "shoal:29092"\n'
        '          producer.override.compression.type: "none"\n'
    )


def test_a_loopback_address_is_pointed_out_for_strimzi() -> None:
    assert strimzi(WIRING).startswith("# 127.0.0.1 leads to Shoal only inside one pod")


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_told_under_their_titles(form: str) -> None:
    title, write = FORMS[form]

    assert f"--- {title}\n\n{write(WIRING)}" in wiring_lines(WIRING)
    assert wiring_lines(WIRING, form) == write(WIRING)
