"""`shoal check` knows TLS and SASL of the mirror's clients, of Shoal's listeners, and between Shoal and the brokers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from shoal.proxy.cli.doctor import Finding, Severity, ShoalListeners, read_mirror, render
from shoal.proxy.config.parse import parse_address
from shoal.proxy.config.security import (
    ClientAuth,
    ClusterTls,
    ListenerSasl,
    ListenerTls,
    Mechanism,
    SaslSettings,
    TlsVersion,
)
from shoal.proxy.config.settings import ClusterSettings
from tests.support.mirror_configs import check, check_connector, grave, mended, shoal, the_one, wired

MUST, SHOULD, NOTE = Severity.MUST, Severity.SHOULD, Severity.NOTE
TLS = ListenerTls(certificate=Path("shoal.pem"))
MUTUAL = ListenerTls(certificate=Path("shoal.pem"), client_ca=Path("ca.pem"), client_auth=ClientAuth.REQUIRED)
SCRAM = SaslSettings(mechanism=Mechanism.SCRAM_SHA_512, username="shoal")
LOGIN = ListenerSasl(mechanisms=("PLAIN", "SCRAM-SHA-512"), users=Path("users"))


def at(
    tls: ListenerTls | None = None,
    sasl: ListenerSasl | None = None,
    *,
    cluster_tls: ClusterTls | None = None,
    cluster_sasl: SaslSettings | None = None,
    brokers: str = "a1:9093",
) -> ShoalListeners:
    """Both listeners and both clusters have the same security."""
    plain, address = shoal(), parse_address(brokers)
    clusters = [
        ClusterSettings(name=name, bootstrap=(address,), tls=cluster_tls, sasl=cluster_sasl)
        for name in ("source", "target")
    ]
    return ShoalListeners(
        wrap=dataclasses.replace(plain.wrap, tls=tls, sasl=sasl),
        unwrap=dataclasses.replace(plain.unwrap, tls=tls, sasl=sasl),
        clusters=tuple(clusters),
    )


def of_consumer(against: ShoalListeners, *lines: str) -> list[Finding]:
    return [finding for finding in grave(check(wired(*lines), against)) if "consumer" in _text(finding)]


def _text(finding: Finding) -> str:
    return f"{finding.at} {finding.write}"


PEM = ("A.consumer.ssl.truststore.type = PEM", "A.consumer.ssl.truststore.location = /etc/kafka/shoal-ca.pem")
GOOD = ("A.consumer.security.protocol = SSL", *PEM)


# -- the protocol ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("against", "given", "right", "why"),
    [
        (at(TLS), "PLAINTEXT", "SSL", "a client without TLS gets no connection"),
        (at(TLS), "SASL_PLAINTEXT", "SASL_SSL", "a client without TLS gets no connection"),
        (at(), "SSL", "PLAINTEXT", "Shoal's listener has no TLS"),
        (at(), "sasl_ssl", "SASL_PLAINTEXT", "Shoal's listener has no TLS"),
        (
            at(cluster_sasl=SCRAM),
            "SASL_PLAINTEXT",
            "PLAINTEXT",
            "Shoal logs in at the brokers itself, by [cluster.sasl]",
        ),
        (at(TLS, cluster_sasl=SCRAM), "SASL_SSL", "SSL", "(shoal mirror: --source-sasl-...): its clients must not"),
        (at(TLS, LOGIN), "SSL", "SASL_SSL", "clients log in at Shoal ([listener.sasl]: SCRAM-SHA-512, PLAIN)"),
        (at(None, LOGIN, cluster_sasl=SCRAM), "PLAINTEXT", "SASL_PLAINTEXT", "clients log in at Shoal"),
        (at(), "TLS", "PLAINTEXT", "Kafka knows no such protocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_a_wrong_protocol_is_found_with_the_right_one(
    against: ShoalListeners, given: str, right: str, why: str
) -> None:
    lines = (
        f"A.consumer.security.protocol = {given}",
        *PEM,
        "A.consumer.sasl.mechanism = PLAIN",
        "A.consumer.sasl.jaas.config = x",
    )

    (finding,) = of_consumer(against, *lines)

    assert finding.severity is MUST
    assert finding.write == (("A.consumer.security.protocol", right),)
    assert why in finding.why
    assert of_consumer(against, f"A.consumer.security.protocol = {right}", *lines[1:]) == []


def test_the_brokers_line_stays_and_the_data_client_gets_its_own() -> None:
    text = wired(
        "A.security.protocol = SSL", "A.ssl.truststore.location = /brokers.jks", "A.bootstrap.servers = a1:9093"
    )

    report = check(text, at(cluster_tls=ClusterTls()))

    finding = the_one(report)
    assert str(finding.at) == "A.security.protocol = SSL"
    assert finding.write == (("A.consumer.security.protocol", "PLAINTEXT"),)
    assert grave(check(mended(text, report), at(cluster_tls=ClusterTls()))) == []


def test_a_protocol_of_a_config_provider_is_a_note() -> None:
    report = check(wired("A.consumer.security.protocol = ${file:/x:protocol}"), at())

    assert grave(report) == []
    assert any("is not literal: make sure that it is PLAINTEXT" in finding.why for finding in report.findings)


def test_in_exactly_once_mode_the_workers_lines_count_as_well() -> None:
    text = wired("B.bootstrap.servers = 127.0.0.1:29092", "B.producer.security.protocol = SSL", *GOOD)

    writes = [pair for finding in grave(check(text, at(TLS))) for pair in finding.write]

    assert ("B.security.protocol", "SSL") in writes
    assert ("B.ssl.truststore.location", "/etc/kafka/shoal-ca.pem") in writes


# -- what brokers ask for ----------------------------------------------------------------------------------------------


def test_somebody_must_log_in_where_the_brokers_ask_for_it() -> None:
    lines = (
        "A.security.protocol = SASL_PLAINTEXT",
        "A.consumer.security.protocol = PLAINTEXT",
        "A.bootstrap.servers = a1:9093",
    )

    (finding,) = of_consumer(at(), *lines)

    assert finding.severity is MUST
    assert "with this line no login happens" in finding.why
    assert finding.write == (("A.consumer.security.protocol", "SASL_PLAINTEXT"),)
    assert of_consumer(at(cluster_sasl=SCRAM), *lines) == []
    assert of_consumer(at(brokers="a1:9999"), *lines) == [], "another listener of the brokers"


def test_shoal_needs_tls_where_the_brokers_have_it() -> None:
    lines = ("A.security.protocol = SSL", "A.consumer.security.protocol = PLAINTEXT", "A.bootstrap.servers = a1:9093")

    finding = the_one(check(wired(*lines), at()))

    assert finding.severity is MUST
    assert str(finding.at) == "A.security.protocol = SSL"
    assert "Shoal goes to a1:9093 without it: add [cluster.tls] (shoal mirror: --source-tls-...)" in finding.why
    assert grave(check(wired(*lines), at(brokers="a1:9092"))) == [], "another listener of the brokers"


def test_shoal_with_tls_where_the_mirror_has_none_is_strange() -> None:
    lines = ("A.security.protocol = PLAINTEXT", "A.bootstrap.servers = a1:9093")

    finding = the_one(check(wired(*lines), at(cluster_tls=ClusterTls())))

    assert finding.severity is SHOULD
    assert "one of them is wrong" in finding.why


# -- certificates ------------------------------------------------------------------------------------------------------


def test_a_client_needs_a_truststore() -> None:
    (finding,) = of_consumer(at(TLS), "A.consumer.security.protocol = SSL")

    assert finding.severity is SHOULD
    assert finding.write == (
        ("A.consumer.ssl.truststore.type", "PEM"),
        ("A.consumer.ssl.truststore.location", "/etc/kafka/shoal-ca.pem"),
    )
    assert of_consumer(at(TLS), *GOOD) == []


@pytest.mark.parametrize(("kind", "how"), [("JKS", "keytool -importcert"), ("PEM", "append it to this PEM file")])
def test_an_inherited_truststore_must_have_shoals_authority_too(kind: str, how: str) -> None:
    inherited = ("A.security.protocol = SSL", "A.ssl.truststore.location = /brokers", f"A.ssl.truststore.type = {kind}")
    report = check(wired(*inherited), at(TLS))

    (note,) = [finding for finding in report.findings if str(finding.at).startswith("A.ssl.truststore.location")]
    assert note.severity is NOTE
    assert f"must also hold the CA of Shoal's certificate: {how}" in note.why


def test_a_pem_truststore_cannot_have_the_inherited_password() -> None:
    finding, *_ = of_consumer(at(TLS), *GOOD, "A.ssl.truststore.password = brokers-secret")

    assert finding.severity is MUST
    assert "Kafka refuses a password for a PEM truststore" in finding.why
    assert ("A.consumer.ssl.truststore.type", "PKCS12") in finding.write


def test_a_client_needs_a_certificate_where_shoal_demands_one() -> None:
    (finding,) = of_consumer(at(MUTUAL), *GOOD)

    assert finding.severity is MUST
    assert finding.write == (
        ("A.consumer.ssl.keystore.type", "PEM"),
        ("A.consumer.ssl.keystore.location", "/etc/kafka/mirror.pem"),
    )
    assert of_consumer(at(MUTUAL), *GOOD, "A.consumer.ssl.keystore.location = /mirror.pem") == []


@pytest.mark.parametrize("against", [at(), at(TLS, cluster_tls=ClusterTls()), at(TLS)])
def test_a_certificate_does_not_reach_the_brokers(against: ShoalListeners) -> None:
    protocol = f"A.consumer.security.protocol = {'SSL' if against.wrap.tls else 'PLAINTEXT'}"
    report = check(wired(protocol, *PEM, "A.ssl.keystore.location = /mirror.p12"), against)

    (finding,) = [finding for finding in report.findings if "keystore" in str(finding.at)]
    assert finding.severity is SHOULD
    assert finding.why.startswith("TLS ends at Shoal: the brokers see Shoal's certificate, never this one.")
    assert "certificate and key of [cluster.tls] (shoal mirror: --source-tls-...)" in finding.why


def test_with_a_certificate_of_shoals_own_it_is_a_note() -> None:
    against = at(cluster_tls=ClusterTls(certificate=Path("shoal.pem")))
    report = check(wired("A.ssl.keystore.location = /mirror.p12"), against)

    (finding,) = [finding for finding in report.findings if "keystore" in str(finding.at)]
    assert finding.severity is NOTE
    assert "Its principal needs the permissions of the mirror" in finding.why


def test_host_names_are_verified() -> None:
    (finding,) = of_consumer(at(TLS), *GOOD, "A.consumer.ssl.endpoint.identification.algorithm =")

    assert finding.severity is SHOULD
    assert finding.write == (("A.consumer.ssl.endpoint.identification.algorithm", "https"),)

    lax = at(TLS, cluster_tls=ClusterTls(verify_host_name=False))
    assert any("remove verify-host-name" in finding.why for finding in check(wired(*GOOD), lax).findings)


@pytest.mark.parametrize(
    ("shoals", "given", "right"),
    [
        ("1.2", "TLSv1.1,TLSv1", "TLSv1.2,TLSv1.3"),
        ("1.2", "tlsv1.1, tlsv1.2", None),
        ("1.3", "TLSv1.2", "TLSv1.3"),
        ("1.3", "TLSv1.2,TLSv1.3", None),
        ("1.3", "${env:VERSIONS}", None),
    ],
)
def test_versions_of_tls_that_shoal_does_not_take(shoals: TlsVersion, given: str, right: str | None) -> None:
    tls = dataclasses.replace(TLS, min_version=shoals)
    found = of_consumer(at(tls), *GOOD, f"A.consumer.ssl.enabled.protocols = {given}")
    if right is None:
        assert found == []
    else:
        (finding,) = found
        assert finding.severity is MUST
        assert finding.write == (("A.consumer.ssl.enabled.protocols", right),)


# -- logins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM", None])
@pytest.mark.parametrize("tls", [None, TLS])
def test_a_mechanism_that_signs_the_host_cannot_pass(mechanism: str | None, tls: ListenerTls | None) -> None:
    transport = "SSL" if tls else "PLAINTEXT"
    named = () if mechanism is None else (f"A.sasl.mechanism = {mechanism}",)

    (finding,) = of_consumer(at(tls), f"A.consumer.security.protocol = SASL_{transport}", *PEM, *named)

    assert finding.severity is MUST
    assert f"{mechanism or 'GSSAPI'} signs the host name that the client connects to" in finding.why
    assert "[cluster.sasl] (shoal mirror: --source-sasl-...)" in finding.why
    assert finding.write == (("A.consumer.security.protocol", transport),)
    after = (f"A.consumer.security.protocol = {transport}", *PEM, *named)
    assert of_consumer(at(tls, cluster_sasl=SCRAM), *after) == []


def test_a_mechanism_that_shoal_does_not_offer_is_found() -> None:
    lines = ("A.consumer.security.protocol = SASL_SSL", *PEM, "A.consumer.sasl.mechanism = SCRAM-SHA-256")

    (finding,) = of_consumer(at(TLS, LOGIN), *lines)

    assert finding.severity is MUST
    assert "Shoal's listener offers SCRAM-SHA-512, PLAIN ([listener.sasl])" in finding.why
    assert [key for key, _ in finding.write] == ["A.consumer.sasl.mechanism", "A.consumer.sasl.jaas.config"]
    assert dict(finding.write)["A.consumer.sasl.mechanism"] == "SCRAM-SHA-512"
    assert of_consumer(at(TLS, LOGIN), *(" = ".join(pair) for pair in finding.write), *lines[:-1]) == []


def test_a_login_at_shoal_needs_a_user_of_shoals() -> None:
    lines = ("A.consumer.security.protocol = SASL_SSL", *PEM, "A.consumer.sasl.mechanism = PLAIN")

    (finding,) = of_consumer(at(TLS, LOGIN), *lines)
    inherited = check(wired(*lines, "A.sasl.jaas.config = x"), at(TLS, LOGIN))

    assert finding.severity is SHOULD
    assert "shoal users add" in finding.why
    assert any("make sure that its users file has this user" in note.why for note in inherited.findings)


# -- Kafka Connect -----------------------------------------------------------------------------------------------------


def test_on_connect_the_workers_protocol_is_not_visible() -> None:
    finding = next(
        one for one in grave(check_connector({}, at(TLS))) if "producer.override.security.protocol" in str(one.at)
    )
    assert finding.severity is MUST, "PLAINTEXT, unless the worker has another one"

    hinted = grave(check_connector({"target.cluster.security.protocol": "SSL"}, at(TLS)))
    finding = next(one for one in hinted if "producer.override.security.protocol" in str(one.at))
    assert finding.severity is SHOULD
    assert "the worker's own producer.security.protocol is not visible here" in finding.why


def test_the_truststore_of_strimzi_gets_shoals_authority_by_the_resource() -> None:
    strimzi = {
        "source.cluster.security.protocol": "SSL",
        "source.cluster.ssl.truststore.location": "/tmp/kafka/clusters/A.truststore.p12",
    }

    report = check_connector(strimzi, at(TLS, cluster_tls=ClusterTls()))

    (note,) = [finding for finding in report.findings if "ssl.truststore.location = /tmp" in str(finding.at)]
    assert "add its Secret to tls.trustedCertificates of the cluster" in note.why


# -- secrets -----------------------------------------------------------------------------------------------------------

JAAS = 'x.PlainLoginModule required username="mirror" password="{}";'


@pytest.mark.parametrize(
    "line",
    [
        "A.consumer.sasl.jaas.config = " + JAAS.format("hunter2"),
        "A.consumer.sasl.jaas.confg = " + JAAS.format("hunter2"),
        "sasl.jaas.config = " + JAAS.format("hunter2"),
        'A.consumer.sasl.jaas.config = x.OwnLoginModule required username="mirror" key=hunter2;',
        "A.ssl.truststore.password = hunter2",
        "A.consumer.ssl.keystore.key = -----BEGIN PRIVATE KEY----- hunter2",
        "consumer.ssl.key.password = hunter2",
        "A.consumer.ssl.keystore.pasword = hunter2",
        "A.consumer.sasl.jass.config = hunter2",
        "A.consumer.ssl.truststore.psswd = hunter2",
        "A.consumer.sasl.oauthbearer.assertion.private.key.passphrase = hunter2",
        "A.consumer.schema.registry.basic.auth.user.info = mirror:hunter2",
        "A.consumer.sasl.oauthbearer.client.credentials.client.secret = hunter2",
    ],
)
@pytest.mark.parametrize("against", [at(TLS, LOGIN), at(MUTUAL), at()])
def test_no_secret_of_the_mirror_is_printed(line: str, against: ShoalListeners) -> None:
    """Twice in the file, too: the report names both lines."""
    text = wired(line, *PEM, "A.consumer.security.protocol = SASL_SSL") + f"{line}\n"

    said = render(check(text, against), "mm2.properties")

    assert "hunter2" not in said
    assert f"{line.partition(' = ')[0]} = [hidden]" in said


def test_what_a_config_provider_inserts_is_no_secret_nor_is_a_path() -> None:
    lines = (
        "A.ssl.truststore.password = ${file:/x:password}",
        "A.consumer.sasl.jaas.config = " + JAAS.format("${env:P}"),
        "A.consumer.sasl.mechanisms = PLAIN",
        "A.consumer.ssl.ca.location = /etc/ca.pem",
    )

    said = render(check(wired(*lines) + "".join(f"{line}\n" for line in lines), at()), "mm2.properties")

    assert all(line in said for line in lines)
    assert "[hidden]" not in said


def test_no_secret_of_a_connector_is_printed() -> None:
    config = {
        "producer.override.sasl.jaas.config": JAAS.format("hunter2"),
        "producer.override.sasl.mechanism": "GSSAPI",
    }
    report = check_connector(config, at(TLS, LOGIN))

    assert "hunter2" not in render(report, "connector.json")


def test_the_report_of_an_unreadable_file_has_no_secret() -> None:
    with pytest.raises(ValueError, match="not valid JSON") as raised:
        read_mirror('{"config": {"sasl.jaas.config": "hunter2" ')
    assert "hunter2" not in str(raised.value)
