"""`shoal check`: each rule finds its fault, prints lines that fix it, and is silent if all is well."""

from __future__ import annotations

import json

import pytest

from shoal.proxy.cli.doctor import (
    Severity,
    check_mirror,
    read_mirror,
    render,
)
from shoal.proxy.cli.doctor.properties import Entry
from shoal.proxy.cli.mm2_lines import Wiring, connect, dedicated
from shoal.proxy.config.settings import Address, ShallowSettings
from tests.support.mirror_configs import CONNECTOR, WIRED, check, check_json, grave, mended, shoal, the_one, wired

# -- all is well -------------------------------------------------------------------------------------------------------


def test_the_properties_of_the_real_mirrors_need_no_change() -> None:
    report = check(WIRED)

    assert grave(report) == []
    assert not report.must_change
    assert "0 must change, 0 should change, 2 notes. This mirror can go through Shoal" in render(
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


# -- one rule each -----------------------------------------------------------------------------------------------------

MUST, SHOULD = Severity.MUST, Severity.SHOULD


@pytest.mark.parametrize(
    ("line", "severity", "why"),
    [
        ("A.consumer.bootstrap.servers = a1:9092", MUST, "reads past Shoal: nothing is wrapped"),
        (
            "A.consumer.bootstrap.servers = 127.0.0.1:29092",
            MUST,
            "this is Shoal's target listener: the listeners are swapped",
        ),
        ("A.consumer.bootstrap.servers = 127.0.0.1:18092", MUST, "has mode plain: the consumer needs mode = wrap"),
        ("A.consumer.bootstrap.servers = 127.0.0.1:19092,a1:9092", MUST, "the list has Shoal and brokers (a1:9092)"),
        ("B.producer.bootstrap.servers = 127.0.0.1:9192", MUST, "an envelope would end up in a topic"),
        ("B.producer.bootstrap.servers = 127.0.0.1:19092", MUST, "this is Shoal's source listener"),
        ("B.producer.bootstrap.servers = b1:9092,127.0.0.1:29092", MUST, "the list has Shoal and brokers (b1:9092)"),
        ("B.producer.compression.type = zstd", MUST, "would compress envelopes"),
        ("A->B.producer.override.compression.type = lz4", MUST, "would compress envelopes"),
        ("B.producer.max.request.size = 300000", MUST, "an envelope has up to 524288 bytes"),
        ("B.producer.buffer.memory = 1000000", SHOULD, "fewer than four envelopes"),
        ("B.producer.acks = 0", MUST, "lost records go unnoticed"),
        ("B.producer.acks = 1", SHOULD, "lost if it fails"),
        ("B.producer.transactional.id = mirror", MUST, "Connect starts no transaction with it"),
        ("B.producer.max.in.flight.requests.per.connection = 5", SHOULD, "which reorders records"),
        ("B.producer.request.timeout.ms = 1000", SHOULD, "the default is 30000"),
        ("B.producer.interceptor.classes = x.Y", SHOULD, "sees envelopes instead of records"),
        ("A.consumer.interceptor.classes = x.Y", SHOULD, "sees envelopes instead of records"),
        ("A.consumer.max.partition.fetch.bytes = 65536", SHOULD, "a run cannot be longer"),
        ("A->B.source.consumer.fetch.max.bytes = 65536", SHOULD, "a run cannot be longer"),
        ("A.consumer.max.poll.records = 1", SHOULD, "the default is 500"),
        ("A.security.protocol = SSL", MUST, "Shoal's listener has no TLS (if it has, call shoal check with -c"),
        ("header.converter = org.apache.kafka.connect.storage.StringConverter", MUST, "ByteArrayConverter"),
        (
            "producer.compression.type = zstd",
            SHOULD,
            "MM2 ignores this line: the data producer reads B.producer.compression.type",
        ),
        (
            "consumer.max.poll.records = 10",
            SHOULD,
            "MM2 ignores this line: the data consumer reads A.consumer.max.poll.records",
        ),
        (
            "A->B.producer.acks = 0",
            SHOULD,
            "this is for the offset-syncs producer; the data producer reads B.producer.acks",
        ),
        ("emit.heartbeats.enabled = true", SHOULD, "also starts the reverse worker B->A"),
        ("KAFKA_HEAP_OPTS = -Xmx1g", SHOULD, "KAFKA_HEAP_OPTS is a variable of the environment that MM2 is started in"),
    ],
)
def test_a_line_that_is_wrong_is_found_and_mended(line: str, severity: Severity, why: str) -> None:
    text = wired(line)

    finding = the_one(report := check(text))

    assert finding.severity is severity
    assert isinstance(finding.at, Entry)
    assert str(finding.at) == line
    assert text.splitlines()[finding.at.line - 1] == line
    assert why in finding.why
    assert grave(check(mended(text, report))) == [] or "ignores" in why or "offset-syncs producer" in why


def test_lines_of_a_shell_script_are_no_settings() -> None:
    finding = the_one(check(wired('export KAFKA_JVM_PERFORMANCE_OPTS="-server"')))

    assert "KAFKA_JVM_PERFORMANCE_OPTS is a variable of the environment" in finding.why


EXACTLY_ONCE = (
    "B.exactly.once.source.support = enabled",
    "B.bootstrap.servers = 127.0.0.1:29092",
    "dedicated.mode.enable.internal.rest = true",
    "A.consumer.isolation.level = read_committed",
)


def test_an_exactly_once_mirror_passes_as_it_is_documented() -> None:
    assert grave(check(wired(*EXACTLY_ONCE))) == []
    assert grave(check(wired("B.producer.enable.idempotence = true"))) == []


@pytest.mark.parametrize(
    ("missing", "severity", "why"),
    [
        (1, MUST, "must equal the data producer's list"),
        (2, MUST, "internal REST server"),
        (3, SHOULD, "aborted records are copied"),
    ],
)
def test_what_exactly_once_needs_is_found_and_mended(missing: int, severity: Severity, why: str) -> None:
    text = wired(*(line for at, line in enumerate(EXACTLY_ONCE) if at != missing))

    finding = the_one(report := check(text))

    assert finding.severity is severity
    assert why in finding.why
    assert " = ".join(finding.write[0]) == EXACTLY_ONCE[missing]
    assert grave(check(mended(text, report))) == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_other_mechanisms_pass(mechanism: str) -> None:
    assert grave(check(wired("A.security.protocol = SASL_PLAINTEXT", f"A.sasl.mechanism = {mechanism}"))) == []


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("A->B.producer.override.acks. = all", None),
        ("B.producer.max.request.sise = 900000", "B.producer.max.request.size = 900000"),
        ("A->B.source.consumer.max.poll.record = 400", "A->B.source.consumer.max.poll.records = 400"),
        ("A.consumer.fetch.min.bytes = 100", None),
        ("A.consumer.receive.buffer.bytes = 100", None),
        ("B.producer.delivery.timeout.ms = 100", None),
        ("B.producer.transaction.timeout.ms = 100", None),
    ],
)
def test_a_key_that_is_misspelt_is_found_and_mended(line: str, meant: str | None) -> None:
    text = wired(line)
    report = check(text)

    if meant is None:
        assert grave(report) == []
        return
    finding = the_one(report)
    assert "did you mean" in finding.why
    assert finding.write == (tuple(meant.split(" = ")),)
    assert grave(check(mended(text, report))) == []


@pytest.mark.parametrize("line", ["B.producer.compresion.type = zstd", "A.consumer.bootstrap.server = 10.0.0.9:1"])
def test_a_misspelt_key_beside_the_right_one_is_only_removed(line: str) -> None:
    """Its value would replace the one that is right."""
    text = wired(line)
    report = check(text)
    finding = the_one(report)
    assert "That one is set, too" in finding.why
    assert finding.write == ()
    assert grave(check(mended(text, report))) == []


@pytest.mark.parametrize("value", ["1MB", "1_048_576", "1e6", "-1", "much"])
@pytest.mark.parametrize("key", ["B.producer.max.request.size", "B.producer.batch.size", "A.consumer.max.poll.records"])
def test_what_should_be_a_number_and_is_none_is_found(key: str, value: str) -> None:
    finding = the_one(check(wired(f"{key} = {value}")))

    assert finding.severity is MUST
    assert f"{value} is not a plain number" in finding.why


def test_a_number_of_a_config_provider_is_not_judged() -> None:
    assert grave(check(wired("B.producer.max.request.size = ${env:REQUEST}"))) == []


def test_a_misspelt_address_is_told_besides_the_missing_one() -> None:
    text = wired("A.consumer.bootstap.servers = 127.0.0.1:19092", without=["A.consumer.bootstrap.servers"])

    missing, misspelt = grave(check(text))

    assert "not set" in str(missing.at)
    assert misspelt.why == "the consumer has no setting bootstap.servers; did you mean bootstrap.servers?"
    assert misspelt.write == missing.write


def test_a_line_that_is_missing_is_named_and_the_brokers_line_stays() -> None:
    text = wired(without=["A.consumer.bootstrap.servers", "B.producer.bootstrap.servers"])

    report = check(text)

    consumer, producer = grave(report)
    assert (
        consumer.at
        == "A.consumer.bootstrap.servers is not set; falls back to A.bootstrap.servers (line 2), which can stay"
    )
    assert consumer.write == (("A.consumer.bootstrap.servers", "127.0.0.1:19092"),)
    assert producer.write == (("B.producer.bootstrap.servers", "127.0.0.1:29092"),)
    assert grave(check(mended(text, report))) == []


def test_a_missing_bootstrap_everywhere_is_found() -> None:
    text = wired(without=["A.consumer.bootstrap.servers", "A.bootstrap.servers"])

    assert "A.consumer.bootstrap.servers is not set" in {finding.at for finding in grave(check(text))}


def test_heartbeats_are_on_by_default() -> None:
    finding = the_one(check(wired(without=["emit.heartbeats.enabled"])))

    assert finding.at == "emit.heartbeats.enabled is not set (default true)"
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


# -- transforms, policies ----------------------------------------------------------------------------------------------


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


def test_a_mirror_that_skips_claim_checks_is_found_and_mended() -> None:
    text = wired("errors.tolerance = all")
    finding = the_one(report := check(text))
    assert finding.severity is MUST
    assert "claim-check-bytes = 0" in finding.why
    assert grave(check(mended(text, report))) == []


def test_what_the_mirror_skips_is_noted() -> None:
    report = check(wired("errors.tolerance = all"), shoal(ShallowSettings(claim_check_bytes=0)))
    (finding,) = [one for one in report.findings if "is skipped" in one.why]
    assert finding.severity is Severity.NOTE
    assert not [one for one in check(wired("errors.tolerance = none")).findings if "is skipped" in one.why]


def test_an_idempotent_mirror_that_skips_what_is_refused_is_found_and_mended() -> None:
    text = wired("errors.tolerance = all", "B.producer.enable.idempotence = true")
    finding = the_one(report := check(text))
    assert finding.severity is MUST
    assert "skips the rest of the envelope" in finding.why
    assert grave(check(mended(text, report))) == []
    assert grave(check(wired("errors.tolerance = all", *EXACTLY_ONCE))) == []


@pytest.mark.parametrize(
    "line", ["sync.topic.configs.enabled = false", "config.properties.exclude = compression\\\\.type"]
)
def test_the_codec_of_topics_is_no_matter_where_it_is_not_copied(line: str) -> None:
    assert [finding.at for finding in check(wired(line)).findings] == ["KAFKA_JVM_PERFORMANCE_OPTS (not in this file)"]


# -- both directions ---------------------------------------------------------------------------------------------------

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
BACK = (
    "B->A.enabled = true",
    "A->B.source.consumer.bootstrap.servers = 127.0.0.1:19092",
    "A->B.producer.override.bootstrap.servers = 127.0.0.1:29092",
    "A->B.producer.override.compression.type = none",
)
PER_CLUSTER = ("A.consumer.bootstrap.servers", "B.producer.bootstrap.servers", "B.producer.compression.type")


@pytest.mark.parametrize(
    ("one", "other"),
    [(None, None), (".*", "a-.*"), ("a, b", "b"), ("a-.*", "a-.*"), ("a-x", "a-.*"), (None, "b")],
)
def test_two_flows_that_copy_the_same_topics_under_their_own_names_are_a_loop(
    one: str | None, other: str | None
) -> None:
    topics = [f"{flow}.topics = {what}" for flow, what in (("A->B", one), ("B->A", other)) if what]
    without = (*PER_CLUSTER, *(["A->B.topics"] if one is None else []))
    text = wired(*BACK, IDENTITY, *topics, without=without)
    finding = the_one(check(text))
    assert finding.severity is Severity.MUST
    assert "its records are copied in a circle forever" in finding.why
    assert grave(check(mended(text, check(text)))) == []


@pytest.mark.parametrize(
    ("one", "other", "noted"),
    [("a, b", "c", False), ("a-.*", "b-.*", True), ("a-.*", "b", False), ("(", "b", False)],
)
def test_flows_of_other_topics_are_no_loop(one: str, other: str, noted: bool) -> None:
    report = check(wired(*BACK, IDENTITY, f"A->B.topics = {one}", f"B->A.topics = {other}", without=PER_CLUSTER))
    assert grave(report) == []
    assert any("Make sure that no topic matches both" in finding.why for finding in report.findings) is noted


def test_the_default_policy_and_one_direction_are_no_loop() -> None:
    assert grave(check(wired(*BACK, without=PER_CLUSTER))) == []
    assert grave(check(wired(IDENTITY))) == []
