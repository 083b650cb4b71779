"""Settings that work, but perhaps not as meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.proxy.config.rules.doubts import doubts
from shoal.proxy.config.security import AccessSettings, ClientAuth, ListenerTls
from shoal.proxy.config.settings import ListenerSettings, Settings
from shoal.proxy.connection.client_session import NotAllowed, credentials_of


@pytest.mark.parametrize("auth", [ClientAuth.OPTIONAL, ClientAuth.REQUIRED])
@pytest.mark.parametrize("principals", [{"*": "reader"}, {"CN=a": "writer"}])
@pytest.mark.parametrize("allowed", [(), ("CN=a",)])
def test_clients_without_a_certificate(auth: ClientAuth, principals: dict[str, str], allowed: tuple[str, ...]) -> None:
    """The warning is given where such a client gets credentials."""
    listener = ListenerSettings(
        name="l",
        cluster="c",
        tls=ListenerTls(certificate=Path("a"), client_auth=auth),
        principals=principals,
        access=AccessSettings(principals=allowed),
    )
    try:
        passes = auth is ClientAuth.OPTIONAL and credentials_of(None, listener) == "reader"
    except NotAllowed:
        passes = False
    found = list(doubts(Settings(clusters=(), listeners=(listener,))))
    assert bool(found) == passes
    assert all("clients without a certificate get the credentials of" in doubt for doubt in found)


def test_a_list_of_principals_has_no_patterns() -> None:
    listener = ListenerSettings(name="l", cluster="c", access=AccessSettings(principals=("*",)))
    (doubt,) = doubts(Settings(clusters=(), listeners=(listener,)))
    assert doubt.startswith("listener 'l': access.principals: names are compared exactly")
