"""`shoal check`: each rule finds what it is for, writes lines that mend it, and is silent where all is well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from shoal.proxy.doctor import (
    Finding,
    Report,
    Severity,
    Shoal,
    Unreadable,
    check_mirror,
    read_mirror,
    render,
)
from shoal.proxy.doctor.properties import Entry, read_properties
from shoal.proxy.settings import Address, ListenerSettings, Mode, PortMap, PortRange, ShallowSettings
from shoal.proxy.wiring import Wiring, connect, dedicated
from tests.proxy.record_mm2_settings import RECORDED, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

# The properties with which real MM2 3.9.1 and 4.3.0 mirror through a proxy between two real brokers.
WIRED = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:9092
B.bootstrap.servers = 127.0.0.1:9192
A.consumer.bootstrap.servers = 127.0.0.1:19092
B.producer.bootstrap.servers = 127.0.0.1:29092
B.producer.compression.type = none
A->B.enabled = true
A->B.topics = t.*
tasks.max = 4
emit.heartbeats.enabled = false
emit.checkpoints.interval.seconds = 5
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 5
refresh.topics.interval.seconds = 10
sync.topic.acls.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
"""
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a1:9092",
    "target.cluster.bootstrap.servers": "b1:9092",
    "source.consumer.bootstrap.servers": "127.0.0.1:19092",
    "producer.override.bootstrap.servers": "127.0.0.1:29092",
    "producer.override.compression.type": "none",
    "key.converter": BYTES,
    "value.converter": BYTES,
    "header.converter": BYTES,
    "topics": "t.*",
    "tasks.max": 4,
}
SHALLOW = ShallowSettings()


def shoal(shallow: ShallowSettings = SHALLOW, host: str = "127.0.0.1", advertise: str | None = None) -> Shoal:
    wrap, unwrap = (
        ListenerSettings(
            name=name,
            cluster=name,
            host=host,
            port=port,
            advertised_host=advertise,
            nodes=PortRange(first=port + 1, last=port + 100),
            mode=mode,
            shallow=shallow,
        )
        for name, port, mode in (("source", 19092, Mode.WRAP), ("target", 29092, Mode.UNWRAP))
    )
    plain = ListenerSettings(name="plain", cluster="source", port=18092, nodes=PortMap(ports={1: 18093}))
    return Shoal(wrap=wrap, unwrap=unwrap, others=(plain,))


def wired(*changes: str, without: Iterable[str] = ()) -> str:
    """The good properties with lines replaced (by their key), added and taken away."""
    lines = {line.partition(" = ")[0]: line for line in WIRED.splitlines()}
    lines.update({line.partition(" = ")[0]: line for line in changes})
    return "\n".join(line for key, line in lines.items() if key not in without) + "\n"


def check(text: str, against: Shoal | None = None) -> Report:
    return check_mirror(read_mirror(text), against or shoal())


def check_json(**changes: object) -> Report:
    config = {key: value for key, value in (CONNECTOR | changes).items() if value is not None}
    return check_mirror(read_mirror(json.dumps({"name": "m", "config": config}, indent=2)), shoal())


def grave(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is not Severity.NOTE]


def the_one(report: Report) -> Finding:
    (finding,) = grave(report)
    return finding


def mended(text: str, report: Report) -> str:
    """The properties after the operator has done what the report says."""
    lines = {line.partition(" = ")[0]: line for line in text.splitlines()}
    for finding in grave(report):
        for entry in finding.remove:
            lines.pop(entry.key, None)
        lines.update({key: f"{key} = {value}" for key, value in finding.write})
    return "\n".join(lines.values()) + "\n"


# -- all is well ---------------------------------------------------------------------------------------------------


def test_the_properties_of_the_real_mirrors_need_no_change() -> None:
    report = check(WIRED)

    assert grave(report) == []
    assert not report.must_change
    assert "0 must change, 0 should change, 1 note. This mirror can go through Shoal" in render(
        report, "mm2.properties"
    )


def test_the_connector_needs_no_change() -> None:
    report = check_json()

    assert grave(report) == []
    assert [flow.name for flow in report.flows] == ["A->B"]


def test_the_lines_that_shoal_prints_pass_its_own_check() -> None:
    wiring = Wiring(source=Address("127.0.0.1", 19092), target=Address("127.0.0.1", 29092))
    plain = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
    bare = {key: value for key, value in CONNECTOR.items() if "cluster" in key or key == "connector.class"}

    assert check(plain).must_change
    assert grave(check(plain + dedicated(wiring))) == []
    assert grave(check_mirror(read_mirror(json.dumps(bare | json.loads(connect(wiring)))), shoal())) == []


# -- one rule each -------------------------------------------------------------------------------------------------

MUST, SHOULD = Severity.MUST, Severity.SHOULD


@pytest.mark.parametrize(
    ("line", "severity", "why"),
    [
        ("A.consumer.bootstrap.servers = a1:9092", MUST, "reads past Shoal: nothing is wrapped"),
        ("A.consumer.bootstrap.servers = 127.0.0.1:29092", MUST, "this is Shoal's target listener: the two are mixed up"),
        ("A.consumer.bootstrap.servers = 127.0.0.1:18092", MUST, "has mode plain: the consumer needs mode = wrap"),
        ("A.consumer.bootstrap.servers = 127.0.0.1:19092,a1:9092", MUST, "Shoal and brokers (a1:9092) in one list"),
        ("B.producer.bootstrap.servers = 127.0.0.1:9192", MUST, "an envelope would land in a topic"),
        ("B.producer.bootstrap.servers = 127.0.0.1:19092", MUST, "this is Shoal's source listener"),
        ("B.producer.bootstrap.servers = b1:9092,127.0.0.1:29092", MUST, "Shoal and brokers (b1:9092) in one list"),
        ("B.producer.compression.type = zstd", MUST, "would compress envelopes"),
        ("A->B.producer.override.compression.type = lz4", MUST, "would compress envelopes"),
        ("B.producer.max.request.size = 300000", MUST, "a run of up to 524288 bytes"),
        ("B.producer.buffer.memory = 1000000", SHOULD, "fewer than four envelopes"),
        ("B.producer.acks = 0", MUST, "nobody knows what was appended"),
        ("B.producer.acks = 1", SHOULD, "lost with it"),
        ("B.producer.enable.idempotence = true", MUST, "numbers envelopes, not the records"),
        ("B.producer.transactional.id = mirror", MUST, "this version refuses it"),
        ("B.producer.max.in.flight.requests.per.connection = 5", SHOULD, "records change places"),
        ("B.producer.request.timeout.ms = 1000", SHOULD, "30000 is the default"),
        ("B.producer.interceptor.classes = x.Y", SHOULD, "sees envelopes instead of records"),
        ("A.consumer.interceptor.classes = x.Y", SHOULD, "sees envelopes instead of records"),
        ("A.consumer.max.partition.fetch.bytes = 65536", SHOULD, "runs cannot become longer"),
        ("A->B.source.consumer.fetch.max.bytes = 65536", SHOULD, "runs cannot become longer"),
        ("A.consumer.max.poll.records = 1", SHOULD, "500 is the default"),
        ("A.security.protocol = SSL", MUST, "Shoal speaks no TLS in this version"),
        ("B.producer.security.protocol = SASL_SSL", MUST, "Shoal speaks no TLS in this version"),
        ("B.exactly.once.source.support = enabled", MUST, "in transactions"),
        ("B.exactly.once.source.support = preparing", MUST, "in transactions"),
        ("header.converter = org.apache.kafka.connect.storage.StringConverter", MUST, "ByteArrayConverter"),
        ("producer.compression.type = zstd", SHOULD, "MM2 ignores this line: the data producer reads B.producer.compression.type"),
        ("consumer.max.poll.records = 10", SHOULD, "MM2 ignores this line: the data consumer reads A.consumer.max.poll.records"),
        ("A->B.producer.acks = 0", SHOULD, "this is for the offset-syncs producer; the data producer reads B.producer.acks"),
        ("emit.heartbeats.enabled = true", SHOULD, "also starts the reverse worker B->A"),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_found_and_mended(line: str, severity: Severity, why: str) -> None:
    text = wired(line)

    finding = the_one(report := check(text))

    assert finding.severity is severity
    assert isinstance(finding.at, Entry)
    assert str(finding.at) == line
    assert text.splitlines()[finding.at.line - 1] == line
    assert why in finding.why
    assert grave(check(mended(text, report))) == [] or "ignores" in why or "offset-syncs producer" in why


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM"])
@pytest.mark.parametrize("side", ["A", "B"])
def test_a_mechanism_that_signs_the_host_cannot_pass(mechanism: str, side: str) -> None:
    finding = the_one(check(wired(f"{side}.sasl.mechanism = {mechanism}")))

    assert finding.severity is MUST
    assert "signs the name of the host" in finding.why


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_other_mechanisms_pass(mechanism: str) -> None:
    assert grave(check(wired("A.security.protocol = SASL_PLAINTEXT", f"A.sasl.mechanism = {mechanism}"))) == []


def test_a_line_that_is_missing_is_named_and_the_brokers_line_stays() -> None:
    text = wired(without=["A.consumer.bootstrap.servers", "B.producer.bootstrap.servers"])

    report = check(text)

    consumer, producer = grave(report)
    assert (
        consumer.at
        == "A.consumer.bootstrap.servers is not written, so A.bootstrap.servers (line 2) counts, which may stay"
    )
    assert consumer.write == (("A.consumer.bootstrap.servers", "127.0.0.1:19092"),)
    assert producer.write == (("B.producer.bootstrap.servers", "127.0.0.1:29092"),)
    assert grave(check(mended(text, report))) == []


def test_a_missing_bootstrap_everywhere_is_found() -> None:
    text = wired(without=["A.consumer.bootstrap.servers", "A.bootstrap.servers"])

    assert "A.consumer.bootstrap.servers is not written" in {finding.at for finding in grave(check(text))}


def test_heartbeats_are_on_by_default() -> None:
    finding = the_one(check(wired(without=["emit.heartbeats.enabled"])))

    assert finding.at == "emit.heartbeats.enabled is not written (default true)"
    assert "--clusters B" in finding.why
    assert finding.write == (("emit.heartbeats.enabled", "false"),)


def test_heartbeats_may_be_off_for_the_reverse_flow_alone() -> None:
    assert grave(check(wired("B->A.emit.heartbeats.enabled = false", without=["emit.heartbeats.enabled"]))) == []


def test_defaults_are_judged_by_the_run_limit() -> None:
    report = check(WIRED, shoal(ShallowSettings(run_limit=2 * 1024 * 1024)))

    assert {str(finding.at) for finding in grave(report)} == {
        "B.producer.max.request.size (default 1048576)",
        "A.consumer.max.partition.fetch.bytes (default 1048576)",
    }
    assert grave(check(mended(WIRED, report), shoal(ShallowSettings(run_limit=2 * 1024 * 1024)))) == []


def test_a_value_that_counts_for_the_flow_hides_the_one_of_the_cluster() -> None:
    assert grave(check(wired("B.producer.acks = 0", "A->B.producer.override.acks = all"))) == []


def test_hints_are_notes() -> None:
    report = check(
        wired(
            "B.producer.batch.size = 2000000",
            "A.consumer.fetch.max.bytes = 104857600",
            "A.bootstrap.servers = 127.0.0.1:19092",
        )
    )

    assert grave(report) == []
    assert [str(finding.at) for finding in report.findings if isinstance(finding.at, Entry)] == [
        "A.bootstrap.servers = 127.0.0.1:19092",
        "B.producer.batch.size = 2000000",
        "A.consumer.fetch.max.bytes = 104857600",
    ]


def test_an_address_of_a_config_provider_cannot_be_judged() -> None:
    report = check(wired("A.consumer.bootstrap.servers = ${file:/secrets:shoal}"))

    assert grave(report) == []
    assert any("cannot" not in f.why and "make sure that it is Shoal" in f.why for f in report.findings)


@pytest.mark.parametrize(
    "address",
    [
        "localhost:19092",
        "PLAINTEXT://127.0.0.1:19092",
        "[::1]:19092",
        "127.0.0.1:19093",
        "127.0.0.1:19092,127.0.0.1:19094",
    ],
)
def test_every_way_to_write_shoals_address_is_known(address: str) -> None:
    assert grave(check(wired(f"A.consumer.bootstrap.servers = {address}"))) == []


def test_the_advertised_host_is_what_clients_write() -> None:
    lines = ("A.consumer.bootstrap.servers = shoal.example:19092", "B.producer.bootstrap.servers = shoal.example:29092")
    against = shoal(host="10.0.0.5", advertise="shoal.example")

    assert grave(check(wired(*lines), against)) == []
    assert {f.write for f in grave(check(WIRED, against))} == {
        (("A.consumer.bootstrap.servers", "shoal.example:19092"),),
        (("B.producer.bootstrap.servers", "shoal.example:29092"),),
    }


def test_a_wildcard_listener_is_reached_by_any_name() -> None:
    lines = ("A.consumer.bootstrap.servers = host-7:19092", "B.producer.bootstrap.servers = host-7:29092")

    assert grave(check(wired(*lines), shoal(host="0.0.0.0"))) == []


# -- transforms, policies ------------------------------------------------------------------------------------------


def transforms(kind: str) -> str:
    return wired("A->B.transforms = x", f"A->B.transforms.x.type = org.apache.kafka.connect.transforms.{kind}")


@pytest.mark.parametrize("kind", ["MaskField$Value", "InsertHeader", "Filter", "TimestampRouter", "ReplaceField$Key"])
def test_a_transform_that_needs_records_is_found(kind: str) -> None:
    finding = the_one(check(transforms(kind)))

    assert finding.severity is MUST
    assert kind.partition("$")[0] in finding.why
    assert "--deep-topics" in finding.why


def test_a_transform_of_the_topic_name_alone_is_fine() -> None:
    assert grave(check(transforms("RegexRouter"))) == []


def test_a_transform_for_deep_topics_is_a_note() -> None:
    report = check(transforms("Filter"), shoal(ShallowSettings(deep_topics=("^audit$",))))

    assert grave(report) == []
    assert any("(^audit$): make sure" in finding.why for finding in report.findings)


def test_a_transform_without_a_type_is_found_at_its_name() -> None:
    assert "of unknown type" in the_one(check(wired("transforms = x"))).why


@pytest.mark.parametrize(("policy", "noted"), [("IdentityReplicationPolicy", False), ("com.example.Mine", True)])
def test_a_policy_of_ones_own_is_noted(policy: str, noted: bool) -> None:
    report = check(wired(f"replication.policy.class = org.apache.kafka.connect.mirror.{policy}"))

    assert grave(report) == []
    assert any("internal topics" in finding.why for finding in report.findings) is noted


@pytest.mark.parametrize(
    "line", ["sync.topic.configs.enabled = false", "config.properties.exclude = compression\\\\.type"]
)
def test_the_codec_of_topics_is_no_matter_where_it_is_not_copied(line: str) -> None:
    assert check(wired(line)).findings == ()


# -- flows ---------------------------------------------------------------------------------------------------------


def test_two_targets_of_which_one_goes_through_shoal() -> None:
    text = wired("clusters = A, B, C", "C.bootstrap.servers = c1:9092", "A->C.enabled = true")

    finding = the_one(report := check(text))

    assert finding.flow == "A->C"
    assert "whose producer does not go through it: give the line to A->B alone" in finding.why
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

    assert finding.at == Entry("tasks.max", "4", 9)
    assert "written again in line 23, which counts: tasks.max = 5" in finding.why


# -- Connect -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("source.consumer.bootstrap.servers", "a1:9092", "reads past Shoal"),
        ("source.consumer.bootstrap.servers", None, "reads past Shoal"),
        ("producer.override.bootstrap.servers", None, "writes past Shoal"),
        ("producer.override.compression.type", "gzip", "would compress envelopes"),
        ("producer.override.enable.idempotence", "true", "numbers envelopes"),
        ("producer.override.max.request.size", 1000, "RecordTooLarge"),
        ("header.converter", None, "ByteArrayConverter"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter", "ByteArrayConverter"),
        ("exactly.once.support", "required", "in transactions"),
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


def test_a_connector_without_converters_is_told_once_with_all_three() -> None:
    converters = ("key.converter", "value.converter", "header.converter")

    finding = the_one(report := check_json(**dict.fromkeys(converters)))

    assert finding.at == "key.converter and value.converter and header.converter are not written"
    lines = render(report, "c.json").partition("Lines to have in c.json:\n")[2].rpartition("\n\n")[0]
    assert json.loads("{" + lines + "}") == dict.fromkeys(converters, BYTES)


def test_a_connector_names_its_lines() -> None:
    finding = the_one(check_json(**{"producer.override.compression.type": "gzip"}))

    assert isinstance(finding.at, Entry)
    assert finding.at.line == 11


# -- files that are something else ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no line such as clusters = A, B"),
        ("bootstrap.servers = a:9092", "there is no line such as clusters = A, B"),
        ("clusters = A, B", "there is no line such as A->B.enabled = true"),
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
        "# comment\n! comment\n\n  a.b=1\nc : 2  \nd 3\ne = long \\\n   value\nf\\=g = h\\u0041\\t.\n"
        "empty =\nbare\n# continued \\\ntail = x\\"
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


# -- how it is told ------------------------------------------------------------------------------------------------


def test_a_report_tells_line_reason_and_what_to_write() -> None:
    told = render(check(wired("B.producer.compression.type = zstd")), "mm2.properties")

    assert told.startswith(
        "mm2.properties: dedicated MirrorMaker 2, checked A->B against Shoal at 127.0.0.1:19092 (source) and 127.0.0.1:29092 (target)\n"
    )
    assert "  must change   line 6: B.producer.compression.type = zstd\n" in told
    assert "                => B.producer.compression.type = none\n" in told
    assert "Lines to have in mm2.properties:\n\n    B.producer.compression.type = none\n" in told
    assert told.endswith("1 must change, 0 should change, 1 note. Change these, then check again.\n")
    assert max(map(len, told.splitlines())) <= 140


def test_the_gravest_is_told_first() -> None:
    order = [f.severity for f in check(wired("B.producer.acks = 1", "B.producer.compression.type = zstd")).findings]

    assert order == sorted(order, key=list(Severity).index)
    assert len(set(order)) == 3


# -- the oracle: MirrorMaker 2 itself ------------------------------------------------------------------------------

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
