"""`shoal check` reads the files of `[listener.sasl]`, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.cli.main import main
from tests.proxy.config.test_security_checks import config
from tests.proxy.listener.login.test_login import users_file

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_check_names_the_file_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shoal.toml"
    sasl = 'mechanisms = ["PLAIN", "OAUTHBEARER"]\nusers = "users"\njwks = "keys"\nissuer = "i"\naudience = "a"'
    file.write_text(config(listener=f'ports = "19093-19192"\n[listener.sasl]\n{sasl}'))
    assert main(["check", "-c", str(file)]) == 2
    assert f"listener 'x': users: {tmp_path}/users: cannot be read" in capsys.readouterr().err
    users_file(tmp_path / "users")
    (tmp_path / "keys").write_text("{}")
    assert main(["check", "-c", str(file)]) == 2
    assert f"listener 'x': jwks: {tmp_path}/keys: it is not a JSON Web Key Set" in capsys.readouterr().err
