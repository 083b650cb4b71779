"""The flags of TLS and SASL: the same settings as the keys of shoal.toml, and problems that name the flag."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.cli.flags.arguments import parse_arguments
from shoal.proxy.cli.flags.mirror import in_flags, mirror_settings
from shoal.proxy.cli.flags.security import to_flag
from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.security import ClientAuth, ClusterTls, ListenerTls, Mechanism, SaslSettings, Secret
from tests.support.processes import CLUSTERS, shoal

if TYPE_CHECKING:
    from shoal.proxy.config.settings import Settings


def settings(*flags: str) -> Settings:
    return mirror_settings(parse_arguments(["mirror", *CLUSTERS, *flags]))


def test_without_flags_there_is_no_tls_and_no_login() -> None:
    given = settings()

    assert [(cluster.tls, cluster.sasl) for cluster in given.clusters] == [(None, None)] * 2
    assert [listener.tls for listener in given.listeners] == [None] * 2


def test_tls_alone_trusts_the_systems_authorities() -> None:
    assert [cluster.tls for cluster in settings("--source-tls").clusters] == [ClusterTls(), None]
    assert [cluster.tls for cluster in settings("--target-tls").clusters] == [None, ClusterTls()]


def test_each_cluster_has_its_own_flags() -> None:
    given = settings(
        "--source-tls-ca=a.pem", "--source-tls-server-name=kafka.a",
        "--target-tls-cert=b.pem", "--target-tls-key=b.key", "--target-tls-key-password-file=b.password",
        "--source-sasl-mechanism=SCRAM-SHA-512", "--source-sasl-username=mirror", "--source-sasl-password-file=a.pw",
        "--target-sasl-mechanism=GSSAPI", "--target-sasl-keytab=b.keytab", "--target-sasl-principal=shoal@B",
    )  # fmt: skip

    source, target = given.clusters
    assert source.tls == ClusterTls(ca=Path("a.pem"), server_name="kafka.a")
    assert target.tls == ClusterTls(
        certificate=Path("b.pem"), key=Path("b.key"), key_password=Secret(file=Path("b.password"))
    )
    assert source.sasl == SaslSettings(
        mechanism=Mechanism.SCRAM_SHA_512, username="mirror", password=Secret(file=Path("a.pw"))
    )
    assert target.sasl == SaslSettings(mechanism=Mechanism.GSSAPI, keytab=Path("b.keytab"), principal="shoal@B")


def test_both_listeners_get_the_certificate() -> None:
    given = settings("--listen-tls-cert=s.pem", "--listen-tls-key=s.key", "--listen-tls-client-ca=ca.pem")

    tls = ListenerTls(
        certificate=Path("s.pem"), key=Path("s.key"), client_ca=Path("ca.pem"), client_auth=ClientAuth.REQUIRED
    )
    assert [listener.tls for listener in given.listeners] == [tls, tls]


def test_a_password_on_standard_input_can_be_read_for_each_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("pass word\nmore\n"))
    plain = ("--source-sasl-mechanism=PLAIN", "--source-sasl-username=x", "--source-sasl-password-file=-")

    sasl = settings(*plain).clusters[0].sasl

    assert sasl is not None
    assert sasl.password is not None
    assert sasl.password.file is not None
    assert [sasl.password.file.read_text(encoding="utf-8") for _ in "12"] == ["pass word\n"] * 2
    assert sasl.password.file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--source-sasl-username=x",), "--source-sasl-mechanism: is missing: give one of PLAIN, SCRAM-SHA-256"),
        (("--target-sasl-keytab=x",), "--target-sasl-mechanism: is missing"),
        (("--listen-tls-key=x",), "--listen-tls-cert: is missing: TLS to clients needs Shoal's certificate"),
    ],
)
def test_what_is_missing_is_named_as_a_flag(flags: tuple[str, ...], error: str) -> None:
    with pytest.raises(OperatorError) as raised:
        settings(*flags)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("where", "flag"),
    [
        ("cluster[0].tls.ca", "--source-tls-ca"),
        ("cluster[1].tls.key-password", "--target-tls-key-password-file"),
        ("cluster[1].sasl.token", "--target-sasl-token-file"),
        ("listener[1].tls.certificate", "--listen-tls-cert"),
        ("cluster[0].sasl.token-endpoint", "cluster[0].sasl.token-endpoint"),  # has no flag
        ("cluster 'target': tls.certificate", "--target-tls-cert"),
        ("cluster 'source': sasl.keytab", "--source-sasl-keytab"),
        ("cluster 'target': sasl.password", "--target-sasl-password-file"),
        ("cluster 'other': sasl.password", "cluster 'other': sasl.password"),
        ("listener 'target': tls.key", "--listen-tls-key"),
        ("limits.in-flight", "limits.in-flight"),
    ],
)
def test_a_problem_of_a_key_names_its_flag(where: str, flag: str) -> None:
    assert to_flag(Problem(where, "x")) == in_flags(Problem(where, "x")) == Problem(flag, "x")
    assert to_flag(Problem("cluster[0].sasl.password", "x"), {"0": ""}) == Problem("--sasl-password-file", "x")


def test_an_unknown_mechanism_is_refused_with_the_known_ones() -> None:
    done = shoal("mirror", *CLUSTERS, "--source-sasl-mechanism", "DIGEST-MD5")

    assert done.returncode == 2
    assert '--source-sasl-mechanism: unknown value "DIGEST-MD5"; write one of: ' in done.stderr
    assert "SCRAM-SHA-512" in done.stderr


@pytest.mark.parametrize("command", ["mirror", "check"])
def test_the_help_shows_the_flags_of_one_side(command: str) -> None:
    done = shoal(command, "--help")

    assert "--source-tls-ca FILE" in done.stdout
    assert "for the target: --target-tls-..." in done.stdout
    assert "--target-tls-ca" not in done.stdout
