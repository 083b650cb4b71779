"""A Kerberos KDC (MIT's, the Debian package krb5-kdc) as a process on loopback, with its database in a directory.

    kdc = await Kdc.start(work / "kdc")
    keytab = kdc.keytab("alice")

Principals have random keys, which their keytabs hold. Programs need `kdc.environment(name)` (MIT's
libraries) or `kdc.jvm_options` (Java). Host names are used as they are, without reverse look-ups: see `SERVICE`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.errors import SetupError, ToolFailed
from shoal.scenarios.kafka.ports import LOOPBACK, free_port, is_free
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["HOST", "REALM", "SERVICE", "Kdc", "kerberos_login", "running_kdc"]

REALM, HOST = "SHOAL.TEST", "localhost"
SERVICE = f"kafka/{HOST}"
"""The principal of brokers. A Java broker has one, so clients must use this host name."""
_SYSTEM = ("/usr/sbin", "/usr/local/sbin")
_START_S = 20.0
_CLIENT = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = {host}:{port}
    }}
"""
_SERVER = """\
[realms]
    {realm} = {{
        database_name = {home}/principal
        key_stash_file = {home}/stash
        acl_file = {home}/acl
        max_life = {lifetime}s
        kdc_listen = ""
        kdc_tcp_listen = {host}:{port}
    }}
[logging]
    kdc = STDERR
"""


class Kdc:
    """Use `Kdc.start` or `running_kdc`."""

    def __init__(self, home: Path, *, ticket_lifetime_s: int) -> None:
        self.home = home
        self.port = free_port()
        home.mkdir(parents=True, exist_ok=True)
        values = {"realm": REALM, "home": home, "host": LOOPBACK, "port": self.port, "lifetime": ticket_lifetime_s}
        self.config = home / "krb5.conf"
        self.config.write_text(_CLIENT.format(**values))
        (home / "kdc.conf").write_text(_SERVER.format(**values))
        self._process: Process | None = None
        self._keytabs: dict[str, Path] = {}

    @classmethod
    async def start(cls, home: Path, *, ticket_lifetime_s: int = 36_000) -> Kdc:
        """Raises SetupError when the machine has no KDC, NotReady with the end of its log."""
        kdc = cls(home, ticket_lifetime_s=ticket_lifetime_s)
        kdc._run("kdb5_util", "-r", REALM, "create", "-s", "-W", "-P", "not a secret")
        argv = [_program("krb5kdc"), "-n", "-r", REALM]
        kdc._process = Process(argv, log=home / "kdc.log", name="krb5kdc", env=kdc._own_environment)
        await until(lambda: not is_free(kdc.port), within=_START_S, what="the KDC to listen", process=kdc._process)
        return kdc

    def environment(self, name: str) -> dict[str, str]:
        """For a program with MIT's libraries that logs in as the principal `name`: kinit, kcat, Python's gssapi."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5CCNAME": f"FILE:{self.home}/credentials-{name.replace('/', '-')}",
            "KRB5_CLIENT_KTNAME": str(self.keytab(name)),
        }

    @property
    def jvm_options(self) -> tuple[str, ...]:
        return (f"-Djava.security.krb5.conf={self.config}",)

    def principal(self, name: str) -> str:
        return f"{name}@{REALM}"

    def keytab(self, name: str) -> Path:
        """The keytab of the principal `name`, which is created first. Raises ToolFailed."""
        if name not in self._keytabs:
            path = self.home / f"{name.replace('/', '-')}.keytab"
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {name}")
            if not path.exists():
                raise ToolFailed(f"kadmin.local wrote no keytab for {name}")
            self._keytabs[name] = path
        return self._keytabs[name]

    def kill(self) -> None:
        if self._process is not None and self._process.running:
            self._process.kill()

    @property
    def _own_environment(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.home / "kdc.conf")}

    def _run(self, program: str, *arguments: str) -> None:
        argv = [_program(program), *arguments]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env={**os.environ, **self._own_environment}
        )
        if done.returncode:
            raise ToolFailed(f"{program} ended with {done.returncode}\n{done.stdout}{done.stderr}")


@asynccontextmanager
async def running_kdc(home: Path, *, ticket_lifetime_s: int = 36_000) -> AsyncIterator[Kdc]:
    """A KDC for the duration of a block."""
    kdc = await Kdc.start(home, ticket_lifetime_s=ticket_lifetime_s)
    try:
        yield kdc
    finally:
        kdc.kill()


def kerberos_login(kdc: Kdc, name: str) -> str:
    """The JAAS configuration of a Java program that logs in as the principal `name`."""
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{kdc.keytab(name)}" principal="{kdc.principal(name)}";'
    )


def _program(name: str) -> str:
    """Its path: the system's administrators' programs may not be on PATH. Raises SetupError."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_SYSTEM)))
    if path is None:
        raise SetupError(f"{name} not found. On Debian: apt-get install krb5-kdc krb5-admin-server krb5-user")
    return path
