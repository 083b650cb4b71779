"""`shoal check`: flows, connectors, files of other kinds, reports, and MirrorMaker 2 itself as the oracle."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.proxy.cli.doctor import (
    Severity,
    Unreadable,
    check_mirror,
    read_mirror,
    render,
)
from shoal.proxy.cli.doctor.properties import Entry, read_properties
from tests.proxy.cli.doctor.record_mm2_settings import RECORDED, SETTINGS
from tests.support.mirror_configs import BYTES, WIRED, check, check_json, grave, mended, shoal, the_one, wired

MUST, SHOULD = Severity.MUST, Severity.SHOULD

# -- flows -------------------------------------------------------------------------------------------------------------


def test_two_targets_of_which_one_goes_through_shoal() -> None:
    text = wired("clusters = A, B, C", "C.bootstrap.servers = c1:9092", "A->C.enabled = true")

    finding = the_one(report := check(text))

    assert finding.flow == "A->C"
    assert "but its producer does not use Shoal: set the line for A->B only" in finding.why
    assert finding.write == (
        ("A->B.source.consumer.bootstrap.servers", "127.0.0.1:19092"),
        ("A->C.source.consumer.bootstrap.servers", "127.0.0.1:9092"),
    )
    after = check(mended(text, report))
    assert grave(after) == []
    assert any(f.at == "flow A->C" and "mirrored as before" in f.why for f in after.findings)


def test_both_directions_are_wired_flow_by_flow() -> None:
    text = wired(
        "B->A.enabled = true",
        "A.consumer.bootstrap.servers = a1:9092",
        "B.producer.bootstrap.servers = 127.0.0.1:29092",
    )

    finding = the_one(check(text))

    assert finding.flow == "A->B"
    assert finding.write == (("A->B.source.consumer.bootstrap.servers", "127.0.0.1:19092"),)


def test_several_flows_of_which_none_goes_through_shoal() -> None:
    text = wired("B->A.enabled = true", without=["A.consumer.bootstrap.servers", "B.producer.bootstrap.servers"])

    finding = the_one(check(text))

    assert finding.at == "flows A->B, B->A"
    assert finding.write[0] == ("A->B.source.consumer.bootstrap.servers", "127.0.0.1:19092")


def test_a_key_that_stands_twice_is_found() -> None:
    finding = the_one(check(WIRED + "tasks.max = 5\n"))

    assert finding.at == Entry("tasks.max", "4", 10)
    assert "overridden by line 24: tasks.max = 5" in finding.why


# -- Connect -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("source.consumer.bootstrap.servers", "a1:9092", "reads past Shoal"),
        ("source.consumer.bootstrap.servers", None, "reads past Shoal"),
        ("producer.override.bootstrap.servers", None, "writes past Shoal"),
        ("producer.override.compression.type", "gzip", "would compress envelopes"),
        ("producer.override.max.request.size", 1000, "RecordTooLarge"),
        ("header.converter", None, "ByteArrayConverter"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter", "ByteArrayConverter"),
        ("transforms", "mask", "transform mask"),
    ],
)
def test_a_connector_that_is_wrong_is_found(key: str, value: object, why: str) -> None:
    finding = the_one(report := check_json(**{key: value}))

    assert finding.severity is MUST
    assert why in finding.why
    if finding.write:
        assert grave(check_json(**{key: finding.write[0][1]})) == []
        assert f"{json.dumps(finding.write[0][0])}: {json.dumps(finding.write[0][1])}" in render(report, "c.json")


def test_a_connector_that_is_to_be_exactly_once_is_told_what_its_worker_needs() -> None:
    report = check_json(**{"exactly.once.support": "required", "source.consumer.isolation.level": "read_committed"})

    assert [finding.severity for finding in grave(report)] == [SHOULD]
    assert "the worker's own bootstrap.servers (not visible here) must equal this list" in grave(report)[0].why
    assert [finding.severity for finding in grave(check_json(**{"exactly.once.support": "required"}))] == [MUST, SHOULD]


def test_a_connector_without_converters_is_told_once_with_all_three() -> None:
    converters = ("key.converter", "value.converter", "header.converter")

    finding = the_one(report := check_json(**dict.fromkeys(converters)))

    assert finding.at == "key.converter and value.converter and header.converter are not set"
    lines = render(report, "c.json").partition("Set these lines in c.json:\n")[2].rpartition("\n\n")[0]
    assert json.loads("{" + lines + "}") == dict.fromkeys(converters, BYTES)


def test_a_connector_names_its_lines() -> None:
    finding = the_one(check_json(**{"producer.override.compression.type": "gzip"}))

    assert isinstance(finding.at, Entry)
    assert finding.at.line == 11


# -- files of other kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no line such as clusters = A, B"),
        ("bootstrap.servers = a:9092", "it has no line such as clusters = A, B"),
        ("clusters = A, B", "it has no line such as A->B.enabled = true"),
        ("clusters = A, B\nA->B.enabled = false", "enables no replication flow"),
        ('[[cluster]]\nname = "source"\n', "is a configuration of Shoal: give it with -c"),
        ("apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\n", "is a Strimzi resource"),
    ],
)
def test_properties_of_something_else_are_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_mirror(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not valid JSON: line 1 column 2"),
        ("[]", "is not a connector"),
        ('{"config": 3}', '"config" is not an object'),
        ('{"a": "b"}', "no connector.class"),
        ('{"connector.class": "MirrorHeartbeatConnector"}', "the other connectors need no change"),
    ],
)
def test_connectors_of_something_else_are_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read_mirror(text)


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! comment\n\n  a.b=1\nc : 2  \nd 3\ne = long \\\n   value\nf\\=g = h\\u0041\\t.\nempty =\nbare\n# "
        "continued \\\ntail = x\\"
    )

    assert read_properties(text) == [
        Entry("a.b", "1", 4),
        Entry("c", "2", 5),
        Entry("d", "3", 6),
        Entry("e", "long value", 7),
        Entry("f=g", "hA\t.", 9),
        Entry("empty", "", 10),
        Entry("bare", "", 11),
        Entry("tail", "x", 13),
    ]


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_tells_line_reason_and_what_to_write() -> None:
    told = render(check(wired("B.producer.compression.type = zstd")), "mm2.properties")

    assert told.startswith(
        "mm2.properties: dedicated MirrorMaker 2, checked A->B against Shoal at 127.0.0.1:19092 (source) and "
        "127.0.0.1:29092 (target)\n"
    )
    assert "  must change   line 6: B.producer.compression.type = zstd\n" in told
    assert "                => B.producer.compression.type = none\n" in told
    assert "Set these lines in mm2.properties:\n\n    B.producer.compression.type = none\n" in told
    assert told.endswith("1 must change, 0 should change, 2 notes. Change these lines, then check again.\n")
    assert max(map(len, told.splitlines())) <= 140


def test_the_gravest_is_told_first() -> None:
    order = [f.severity for f in check(wired("B.producer.acks = 1", "B.producer.compression.type = zstd")).findings]

    assert order == sorted(order, key=list(Severity).index)
    assert len(set(order)) == 3


# -- the oracle: MirrorMaker 2 itself ----------------------------------------------------------------------------------

MM2_DEFAULTS = {"acks": "all", "key.converter": BYTES}


@pytest.mark.parametrize("case", json.loads(RECORDED.read_text(encoding="utf-8")), ids=lambda case: case["herders"])
def test_every_setting_is_found_where_mirrormaker_finds_it(case: dict[str, Any]) -> None:
    mirror = read_mirror("\n".join(case["properties"]))
    (flow,) = mirror.flows

    for client, keys in SETTINGS.items():
        for key in keys:
            if key == "key.converter":
                continue
            entry = flow.find(client, key)
            assert (entry.value if entry else MM2_DEFAULTS.get(key)) == case[client].get(key), (client, key)
    converter = flow.find("connector", "key.converter") or flow.find("worker", "key.converter")
    expected = case["connector"].get("key.converter") or case["worker"]["key.converter"]  # as in Worker.startTask
    assert (converter.value if converter else BYTES) == expected
    heartbeats = [f for f in check_mirror(mirror, shoal()).findings if "reverse worker" in f.why]
    assert bool(heartbeats) == ("B->A" in case["herders"])
