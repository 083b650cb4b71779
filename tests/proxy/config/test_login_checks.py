"""Keys of `[listener.sasl]` and `[listener.principals]`: each mistake names its key and the way out."""

from __future__ import annotations

import pytest

from tests.proxy.config.test_security_checks import config, problems

PORTS = 'ports = "19093-19192"\n'
TOKENS = 'mechanisms = ["OAUTHBEARER"]\nissuer = "i"\naudience = "a"\n'
NAMED = '[[cluster.credentials]]\nname = "b"\nmechanism = "PLAIN"\nusername = "u"\npassword = { env = "X" }'


def sasl(text: str) -> str:
    return config(listener=f"{PORTS}[listener.sasl]\n{text}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (sasl("mechanisms = []"), "sasl.mechanisms: is empty: name at least one"),
        (sasl('mechanisms = ["PLAIN"]'), "sasl.users: is missing: PLAIN needs a file of users (shoal users add"),
        (sasl('mechanisms = ["GSSAPI"]'), 'unknown value "GSSAPI"'),
        (sasl(f'{TOKENS}jwks = "k"\nusers = "u"'), "sasl.users: has no effect"),
        (sasl(TOKENS), "sasl.jwks: OAUTHBEARER needs the issuer's keys"),
        (sasl(f'{TOKENS}jwks = "k"\njwks-endpoint = "https://x/"'), "set jwks (a file) or jwks-endpoint, not both"),
        (sasl(f'{TOKENS}jwks-endpoint = "http://issuer/keys"'), "sasl.jwks-endpoint: is not https://"),
        (sasl(f'{TOKENS}jwks-endpoint = "https://a:b@issuer/keys"'), "jwks-endpoint: has a user name or a password"),
        (sasl(f'{TOKENS}jwks-endpoint = "file:///keys"'), "sasl.jwks-endpoint: is not https://"),
        (sasl(f'{TOKENS}jwks = "k"\njwks-endpoint-ca = "ca"'), "sasl.jwks-endpoint-ca: has no effect"),
        (sasl('mechanisms = ["OAUTHBEARER"]\njwks = "k"\nissuer = "i"'), "sasl.audience: is missing: without it"),
        (sasl('mechanisms = ["OAUTHBEARER"]\njwks = "k"\naudience = "a"'), "sasl.issuer: is missing"),
        (sasl('mechanisms = ["PLAIN"]\nusers = "u"\nissuer = "i"'), "sasl.issuer: has no effect: add OAUTHBEARER"),
        (sasl('mechanisms = ["PLAIN"]\nusers = "u"\nsession-seconds = 1'), "session-seconds: 1.0 is too small"),
        (
            config(listener=f'{PORTS}[listener.principals]\n"*" = "b"'),
            'principals.*: the cluster "a" has no credentials "b"; write a [[cluster.credentials]] table',
        ),
        (
            config(NAMED, f'{PORTS}[listener.principals]\n"*" = "c"'),
            'principals.*: the cluster "a" has no credentials "c"; known: b',
        ),
        (config(NAMED, f'{PORTS}[listener.principals]\nalice = "b"'), "principals: no client has a principal here"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(text: str, expected: str) -> None:
    assert expected in problems(text)
