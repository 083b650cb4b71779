"""`shoal check` reads the files of `[listener.sasl]`, too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trustme

from shoal.proxy.cli.main import main
from tests.proxy.config.test_security_checks import config
from tests.support.certificates import DAY, pair
from tests.support.secrets import users_file

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_check_names_the_file_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shoal.toml"
    sasl = 'mechanisms = ["PLAIN", "OAUTHBEARER"]\nusers = "users"\njwks = "keys"\nissuer = "i"\naudience = "a"'
    file.write_text(config(listener=f'ports = "19093-19192"\n[listener.sasl]\n{sasl}'))
    assert main(["check", "-c", str(file)]) == 2
    assert f"listener 'x': users: {tmp_path}/users cannot be read" in capsys.readouterr().err
    users_file(tmp_path / "users")
    (tmp_path / "keys").write_text("{}")
    assert main(["check", "-c", str(file)]) == 2
    assert f"listener 'x': jwks: {tmp_path}/keys: it is not a JSON Web Key Set" in capsys.readouterr().err


def test_a_check_warns_as_a_start_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shoal.toml"
    pair(tmp_path, trustme.CA(), "shoal.example", end=time.time() + 5 * DAY)
    (tmp_path / "ca.pem").write_bytes((tmp_path / "server.pem").read_bytes())
    tls = (
        '[listener.tls]\ncertificate = "server.pem"\nkey = "server.key"\nclient-ca = "ca.pem"\nclient-auth = "optional"'
    )
    listener = f'ports = "19093-19192"\nadvertise = "elsewhere.example"\n{tls}\n[listener.principals]\n"*" = "w"'
    credentials = '[[cluster.credentials]]\nname = "w"\nmechanism = "PLAIN"\nusername = "u"\npassword = { env = "P" }'
    file.write_text(config(cluster=credentials, listener=listener))
    assert main(["check", "-c", str(file)]) == 0
    *warnings, last = capsys.readouterr().out.splitlines()
    assert last.endswith("OK: 1 listener (x)")
    assert all(line.startswith("warning: listener 'x': ") for line in warnings)
    for words in ("clients without a certificate", "is not for elsewhere.example", "expires within 7 days"):
        assert sum(words in line for line in warnings) in (1, 2)
