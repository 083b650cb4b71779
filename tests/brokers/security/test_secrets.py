"""No secret is in anything that Shoal writes: logs, captures, state, errors, pages of the admin listener, what its
commands print, its command line, the text of objects.

One Shoal with every kind of secret serves real clients, also ones that fail to log in; another one takes over, and its
files break.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64encode
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import trio
from confluent_kafka import Producer

from shoal.proxy.cluster.cluster import Cluster as UpstreamCluster
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.toml import load_config
from shoal.proxy.net.auth.identity import SaslTable
from shoal.proxy.net.auth.make import make_login
from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.brokers.security.conftest import PASSWORD, USER
from tests.support.admin import ask
from tests.support.kafka_python import KafkaConsumer, KafkaError
from tests.support.processes import shoal as run_shoal
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.certificates import Authority
    from shoal.scenarios.kafka.security.tokens import TokenIssuer

KEY_PASSWORD, WRONG, ALICE, GUESS = "lock-9wQ-riddle", "wr0ng-bR-mystery", "al1ce-tZ-enigma", "gu3ss-xH-conundrum"
CLIENT_SECRET, ENVIRONMENT = "cl1ent-mN-cipher", "SHOAL_TEST_PASSWORD"
COMMAND, QUERY = "c0mmand-kL-argument", "qu3ry-vT-parameter"
_PORTS = 2


@dataclass
class Stand:
    """A configuration with secrets of every kind."""

    work: Path
    authority: Authority
    ports: dict[str, int]
    shoal: ShoalProcess
    brokers: str
    admin: int
    issuer: TokenIssuer
    secrets: dict[str, bytes] = field(default_factory=dict)  # by what they are

    def bootstrap(self, listener: str) -> str:
        return f"{LOOPBACK}:{self.ports[listener]}"


def private(path: Path, text: str) -> dict[str, str]:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return {"file": str(path)}


@pytest.fixture
def stand(secured: Cluster, authority: Authority, issuer: TokenIssuer, tmp_path: Path) -> Stand:
    own = authority.server(LOOPBACK, password=KEY_PASSWORD)
    key = tmp_path / "shoal.key"
    private(key, own.key.read_text(encoding="utf-8"))
    added = run_shoal("users", "add", "users", "alice", "--password-file", "-", stdin=f"{ALICE}\n", cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    token = issuer.token(USER)
    issuer.clients[USER] = CLIENT_SECRET
    logins: dict[str, dict[str, Any]] = {
        "plain": {"mechanism": "PLAIN", "username": USER, "password": private(tmp_path / "password", PASSWORD + "\n")},
        "scram": {"mechanism": "SCRAM-SHA-512", "username": USER, "password": {"env": ENVIRONMENT}},
        "token": {"mechanism": "OAUTHBEARER", "token": private(tmp_path / "token", token)},
        "endpoint": {
            "mechanism": "OAUTHBEARER",
            "token-endpoint": issuer.token_endpoint,
            "client-id": USER,
            "client-secret": private(tmp_path / "client-secret", CLIENT_SECRET),
        },
        "command": {
            "mechanism": "OAUTHBEARER",
            "token-command": ["sh", "-c", f"cat {tmp_path / 'token'} # {COMMAND}"],
            "extensions": {"traceId": QUERY},
        },
        "wrong": {"mechanism": "SCRAM-SHA-256", "username": USER, "password": private(tmp_path / "wrong", WRONG)},
    }
    listeners = (*logins, "through", "here", "bearer")
    first = free_port_block(_PORTS * len(listeners) + 1)
    admin = first + _PORTS * len(listeners)
    ports = {name: first + _PORTS * number for number, name in enumerate(listeners)}
    tls = {"certificate": str(own.certificate), "key": str(key)}
    tls_with_password = {**tls, "key-password": private(tmp_path / "key-password", KEY_PASSWORD)}
    here = {"mechanisms": ["PLAIN", "SCRAM-SHA-512"], "users": str(tmp_path / "users")}
    bearer = {
        "mechanisms": ["OAUTHBEARER"],
        "jwks-endpoint": f"{issuer.jwks_endpoint}?key={QUERY}",
        "issuer": issuer.issuer,
        "audience": issuer.audience,
    }
    at_shoal = {"here": here, "bearer": bearer}
    (tmp_path / "captures").mkdir()
    document = {
        "state-dir": str(tmp_path / "state"),
        "cluster": [
            {
                "name": name,
                "bootstrap": secured.sasl_ssl_bootstrap,
                "tls": {"ca": str(authority.certificate)},
                **({"sasl": logins.get(name, logins["plain"])} if name != "through" else {}),
            }
            for name in listeners
        ],
        "listener": [
            {
                "name": name,
                "cluster": name,
                "listen": f"{LOOPBACK}:{port}",
                "ports": f"{port + 1}-{port + 1}",
                "tls": tls_with_password,
                **({"sasl": at_shoal[name]} if name in at_shoal else {}),
            }
            for name, port in ports.items()
        ],
        "log": {"level": "debug"},
        "capture": {"directory": str(tmp_path / "captures"), "raw": {}},
        "admin": {"listen": f"{LOOPBACK}:{admin}"},
    }
    (tmp_path / "state").mkdir()
    config = write_toml(tmp_path / "shoal.toml", document)
    shoal = ShoalProcess(
        ["run", "-c", str(config)], work=tmp_path, ports=[*ports.values(), admin], env={ENVIRONMENT: PASSWORD}
    )
    stand = Stand(tmp_path, authority, ports, shoal, secured.bootstrap, admin, issuer)
    passwords = {"password": PASSWORD, "wrong": WRONG, "key password": KEY_PASSWORD, "alice": ALICE, "guess": GUESS}
    stand.secrets |= {what: text.encode() for what, text in passwords.items()}
    stand.secrets |= {"client secret": CLIENT_SECRET.encode(), "token": token.encode()}
    stand.secrets |= {"argument of a command": COMMAND.encode(), "parameter of a query": QUERY.encode()}
    stand.secrets["signature of the token"] = token.rpartition(".")[2].encode()
    lines = own.key.read_text(encoding="utf-8").splitlines()[1:-1]
    stand.secrets |= {f"key, line {number}": line.encode() for number, line in enumerate(lines) if len(line) > 20}
    users = (tmp_path / "users").read_text(encoding="utf-8")
    hashes = [word for word in re.split(r"[\s:$]+", users) if len(word) > 30]
    assert len(hashes) >= 5, "a seed, and two keys and a salt for each mechanism"
    stand.secrets |= {f"users, word {number}": word.encode() for number, word in enumerate(hashes)}
    return stand


def produce(bootstrap: str, security: ClientSecurity, topic: str) -> bool:
    """Whether the record arrived."""
    delivered: list[bool] = []
    settings = {"message.timeout.ms": 5000, "socket.timeout.ms": 4000, "log_level": 0}
    producer = Producer({**client_config(bootstrap), **settings, **security.librdkafka()})
    producer.produce(topic, b"value", on_delivery=lambda error, _: delivered.append(error is None))
    producer.flush(10)
    return delivered == [True]


def consume(bootstrap: str, security: ClientSecurity, topic: str) -> bool:
    """Whether kafka-python can log in."""
    try:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, bootstrap_timeout_ms=10_000, **security.kafka_python())
        try:
            consumer.topics()
            return True
        finally:
            consumer.close()
    except KafkaError:
        return False


async def traffic(stand: Stand, topic: str, *only: str) -> dict[str, bool]:
    """-> which clients could produce or log in. `only`: their names; none: all."""
    ca = stand.authority.certificate
    bare = ClientSecurity(ca=ca)
    scram = partial(ClientSecurity, ca=ca, mechanism="SCRAM-SHA-512")
    plain = partial(ClientSecurity, ca=ca, mechanism="PLAIN")
    attempts = {
        "plain": (produce, "plain", bare),
        "scram": (produce, "scram", bare),
        "token": (produce, "token", bare),
        "wrong": (produce, "wrong", bare),
        "through": (produce, "through", scram(user=USER, password=PASSWORD)),
        "through, plain": (consume, "through", plain(user=USER, password=PASSWORD)),
        "through, guess": (produce, "through", plain(user=USER, password=GUESS)),
        "through, guess with SCRAM": (produce, "through", scram(user=USER, password=GUESS)),
        "here": (produce, "here", scram(user="alice", password=ALICE)),
        "here, plain": (consume, "here", plain(user="alice", password=ALICE)),
        "here, guess": (produce, "here", plain(user="alice", password=GUESS)),
        "here, guess with SCRAM": (produce, "here", scram(user="alice", password=GUESS)),
        "no TLS": (produce, "here", ClientSecurity(mechanism="PLAIN", user="alice", password=ALICE)),
        "endpoint": (produce, "endpoint", bare),
        "command": (produce, "command", bare),
        "bearer": (consume, "bearer", ClientSecurity(ca=ca, mechanism="OAUTHBEARER", user=USER, tokens=stand.issuer)),
        "bearer, guess": (
            consume,
            "bearer",
            ClientSecurity(ca=ca, mechanism="OAUTHBEARER", user="", tokens=stand.issuer),
        ),
    }
    done: dict[str, bool] = {}

    async def attempt(name: str) -> None:
        client, listener, security = attempts[name]
        done[name] = await trio.to_thread.run_sync(client, stand.bootstrap(listener), security, topic)

    async with trio.open_nursery() as nursery:
        for name in only or attempts:
            nursery.start_soon(attempt, name)
    return done


def forms(secret: bytes) -> Iterator[bytes]:
    """The secret as it might be written: also base64 (at each alignment, without its ends), hex, percent-encoded."""
    yield secret
    yield from (secret.hex().encode(), secret.hex().upper().encode(), quote(secret).encode())
    for shift in range(3):
        encoded = b64encode(bytes(shift) + secret)
        yield encoded[-(-shift * 4 // 3) + (1 if shift else 0) : -4]


def found(secrets: dict[str, bytes], place: str, content: bytes) -> list[str]:
    return [f"{what} in {place}" for what, secret in secrets.items() if any(form in content for form in forms(secret))]


def of_process(pid: int) -> dict[str, bytes]:
    """What other users of the machine see, and the environment without what the operator put there."""
    shown = {name: Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "comm", "environ")}
    return {**shown, "environ": shown["environ"].replace(f"{ENVIRONMENT}={PASSWORD}".encode(), b"")}


_PAGES = ("/", "/livez", "/readyz", "/status", "/clients", "/config", "/metrics")
_COMMANDS = (("status",), ("status", "--json"), ("clients", "--apis"), ("clients", "--json"))


async def observed(stand: Stand, when: str) -> dict[str, bytes]:
    """What the admin listener and the commands that ask it show."""
    shown = {f"{when}: {page}": (await ask(stand.admin, page))[1] for page in _PAGES}
    for command in _COMMANDS:
        asks = partial(run_shoal, *command, "--admin", f"{LOOPBACK}:{stand.admin}")
        done = await trio.to_thread.run_sync(asks)
        shown[f"{when}: {' '.join(command)}"] = (done.stdout + done.stderr).encode()
    return shown


# Proofs and signatures of SCRAM (RFC 5802) in a message: whole, after a comma or at the start of a token.
_PROOF = re.compile(rb"[,\x00](p|v)=[A-Za-z0-9+/]{40,}")
_TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]{20,}")  # of any client: a JSON object in base64


async def test_no_secret_is_in_anything_that_shoal_writes(stand: Stand, topic: str) -> None:
    secrets = stand.secrets
    written: dict[str, bytes] = {}
    await Topics(stand.brokers).create(topic, 1)
    async with running_shoal(stand.shoal) as shoal:
        done = await traffic(stand, topic)
        written |= of_process(shoal.pid) | await observed(stand, "at first")
        await shoal.take_over()
        written |= {f"taken over: {name}": content for name, content in of_process(shoal.pid).items()}
        for name in ("shoal.key", "users", "password", "token", "wrong"):
            broken = stand.work / name
            broken.write_text("broken " + broken.read_text(encoding="utf-8"), encoding="utf-8")
        (stand.work / "client-secret").chmod(0o644)
        os.kill(shoal.pid, 1)
        await shoal.until_logged("OpenSSL cannot load")
        again = await traffic(
            stand, topic, "plain", "token", "endpoint", "command", "wrong", "through", "here", "bearer"
        )
        written |= await observed(stand, "with broken files")
        checked = await trio.to_thread.run_sync(run_shoal, "check", "-c", str(stand.work / "shoal.toml"))
        await shoal.stop()

    works = {"plain", "scram", "token", "endpoint", "through", "through, plain", "here", "here, plain"}
    works |= {"command", "bearer"}
    assert {name for name, is_good in done.items() if is_good} == works
    assert not again["plain"], "its password is broken now"
    assert again["through"], "the former certificate stays"
    assert checked.returncode == 2
    written["check"] = (checked.stdout + checked.stderr).encode()
    written["log"] = shoal.log.read_bytes()
    captures = [path for name in ("captures", "state") for path in (stand.work / name).rglob("*") if path.is_file()]
    written |= {str(path.name): path.read_bytes() for path in captures}

    assert {path.suffix for path in captures} >= {".kxb", ".pcapng"}
    assert b"cannot log in at the broker" in written["log"]
    assert b"token-command" in written["at first: /config"]
    assert b"cannot log in at the broker" in written["with broken files: /status"]
    assert b"alice" in written["at first: /clients"]
    assert [one for place, content in written.items() for one in found(secrets, place, content)] == []
    assert [place for place, content in written.items() if _PROOF.search(content) or _TOKEN.search(content)] == []


def test_no_secret_is_in_the_text_of_objects_and_of_errors(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, PASSWORD)
    settings = load_config(stand.work / "shoal.toml")
    texts = [repr(settings), str(settings)]
    for cluster in settings.clusters:
        upstream = UpstreamCluster(cluster, settings.limits)
        texts += [repr(upstream), repr(upstream.upstream), repr(vars(upstream))]
        if cluster.sasl is not None:
            login = make_login(cluster.sasl, SaslTable("sasl", cluster.name), settings.limits)
            texts += [repr(login), repr(vars(login)), repr(vars(login._identity))]
    for path in stand.work.glob("*"):
        if path.is_file() and path.suffix != ".toml":
            path.chmod(0o644)
    for cluster in settings.clusters:
        try:
            UpstreamCluster(cluster, settings.limits)
        except OperatorError as error:
            texts.append(str(error))

    assert found(stand.secrets, "texts", "\n".join(texts).encode()) == []


def test_no_secret_is_in_the_report_of_an_unexpected_error(stand: Stand) -> None:
    """The traceback has lines of code only."""
    code = (
        "import sys; import shoal.proxy.listener.listener as l; from shoal.cli import main\n"
        "async def broken(*_, **__): raise RuntimeError('unexpected')\n"
        "l.Listener.run = l.Listener.open = broken\n"
        "import shoal.proxy.lifecycle.server as s; s.Server.run = broken\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-c", code, "run", "-c", str(stand.work / "shoal.toml")]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False, env={**os.environ, ENVIRONMENT: PASSWORD})

    assert done.returncode == 3, done.stderr
    assert b"RuntimeError: unexpected" in done.stderr
    assert found(stand.secrets, "report", done.stdout + done.stderr) == []
