"""Combinations of keys of Shoal's own credentials: each mistake names its key and the way out."""

from __future__ import annotations

import pathlib

import pytest

from shoal.proxy.config.rules.sasl import url_problem
from shoal.proxy.config.toml import read_config
from tests.proxy.config.test_security_checks import config, problems

NAME = 'username = "a"\npassword = { file = "p" }\n'
OAUTH = 'mechanism = "OAUTHBEARER"\n'
ENDPOINT = OAUTH + 'token-endpoint = "https://i/t"\nclient-id = "a"\nclient-secret = { env = "S" }\n'
KERBEROS = 'mechanism = "GSSAPI"\nkeytab = "k"\nprincipal = "a@B"\n'
MSK = 'mechanism = "AWS_MSK_IAM"\nregion = "eu-west-1"\n'


@pytest.mark.parametrize(
    "sasl",
    [
        f'mechanism = "PLAIN"\n{NAME}',
        f'mechanism = "SCRAM-SHA-512"\n{NAME}',
        OAUTH + 'token = { file = "t" }\nextensions = { traceId = "1" }',
        OAUTH + 'token-command = ["aws", "token"]',
        ENDPOINT + 'scope = "s"\ntoken-endpoint-ca = "ca.pem"',
        KERBEROS + 'service = "broker"',
        MSK + 'profile = "p"',
    ],
)
def test_what_is_right(sasl: str) -> None:
    read_config(config(f"[cluster.sasl]\n{sasl}"), pathlib.Path("shoal.toml"))


@pytest.mark.parametrize(
    ("sasl", "expected"),
    [
        ('mechanism = "PLAIN"\nusername = "a"', 'password: is missing: mechanism = "PLAIN" needs it'),
        (KERBEROS + NAME, 'password: has no effect with mechanism = "GSSAPI": remove it'),
        (f'mechanism = "PLAIN"\n{NAME}region = "x"', "region: has no effect"),
        (OAUTH, "token: one of token, token-command and token-endpoint is needed"),
        (ENDPOINT + 'token = { env = "T" }', "token: one of token, token-command and token-endpoint is needed"),
        (OAUTH + 'token = { env = "T" }\nscope = "s"', "scope: has no effect without token-endpoint"),
        (OAUTH + 'token-endpoint = "https://i/t"', "client-secret: is missing: token-endpoint needs it"),
        (ENDPOINT.replace("https", "http"), "token-endpoint: needs https: only a loopback address may have http"),
        (OAUTH + 'token = { env = "T" }\nextensions = { auth = "x" }', "extensions: 'auth' is no name"),
        (OAUTH + "token = { }", "token: needs one of file and env"),
        ('mechanism = "GSSAPI"\nkeytab = "k"', "principal: is missing"),
        (MSK + 'profile = "p"\nrole-arn = "r"', "role-arn: and profile exclude each other"),
    ],
)
def test_what_is_wrong(sasl: str, expected: str) -> None:
    assert f"cluster[0].sasl.{expected}" in problems(config(f"[cluster.sasl]\n{sasl}"))


def test_named_credentials_have_the_same_rules_and_names_of_their_own() -> None:
    named = f'[[cluster.credentials]]\nname = "x"\nmechanism = "PLAIN"\n{NAME}'
    assert 'cluster[0].credentials[1].name: "x" is there twice' in problems(config(named + named))
    assert "credentials[0].region: is missing" in problems(
        config('[[cluster.credentials]]\nname = "x"\nmechanism = "AWS_MSK_IAM"')
    )


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://issuer.example/token", True),
        ("http://localhost:8080/t", True),
        ("http://127.0.0.9/t", True),
        ("http://[::1]/t", True),
        ("http://issuer.example/t", False),
        ("ftp://x/", False),
        ("issuer", False),
        ("https://", False),
        ("https://a:b@issuer/t", False),
        ("https://issuer:x/t", False),
        ("https://[x/t", False),
    ],
)
def test_urls_of_issuers(url: str, is_fine: bool) -> None:
    assert (url_problem(url) is None) is is_fine
