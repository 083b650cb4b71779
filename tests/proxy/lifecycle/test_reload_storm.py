"""Hundreds of reloads of a real process, most of wrong files: the last good file counts, and a client that stays
connected does not notice."""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.ports import free_port_block
from shoal.scenarios.kafka.process import until
from tests.support.rig import FakeBroker, Peer, request
from tests.support.shoal_process import ShoalProcess, listening_ports, running_shoal, write_toml

if TYPE_CHECKING:
    from pathlib import Path

STORMS = 20
SIGNALS = 15  # of a storm, without a pause
MOST_MORE = 5  # listeners that come and go
WITHIN = 60.0


def document(made: FakeBroker, port: int, number: int, more: int) -> dict[str, object]:
    return {
        "tags": {"number": str(number)},
        "log": {"level": "debug" if number % 2 else "info"},
        "limits": {"drain-seconds": 1, "in-flight": 1000 + number},
        "cluster": [{"name": "c", "bootstrap": str(made.address)}],
        "listener": [
            {"name": f"l{at}", "cluster": "c", "listen": f"127.0.0.1:{port + at}", "ports": {"1": port + 10 + at}}
            for at in range(1 + more)
        ],
    }


def spoil(text: str, rng: random.Random) -> str:
    """A file that is being written, or a wrong one."""
    match rng.randrange(4):
        case 0:
            return text[: rng.randrange(len(text))]
        case 1:
            return text.replace("drain-seconds = 1", "drain-seconds = -1")
        case 2:
            return text + '\n[[listener]]\nname = "l0"\ncluster = "none"\nlisten = "127.0.0.1:1"\nports = "2-3"\n'
        case _:
            return text.replace("listen = ", "lisen = ", 1)


async def test_a_storm_of_reloads(tmp_path: Path) -> None:
    rng, port, made, config = random.Random(1), free_port_block(20), FakeBroker(), tmp_path / "shoal.toml"
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        write_toml(config, document(made, port, 0, 0))
        shoal = ShoalProcess(["run", "-c", str(config)], work=tmp_path, ports=[port])
        async with running_shoal(shoal), await trio.open_tcp_stream("127.0.0.1", port) as stream:
            client, asked = Peer(stream), 0
            for number in range(1, STORMS + 1):
                more = rng.randrange(MOST_MORE)
                good = write_toml(config, document(made, port, number, more)).read_text()
                for _ in range(SIGNALS):
                    config.write_text(spoil(good, rng))
                    os.kill(shoal.pid, signal.SIGHUP)
                    asked += 1
                    await client.send(request(300, 0, asked, b"goes on"))
                    assert (await client.frame()).endswith(b"goes on")
                config.write_text(good)
                os.kill(shoal.pid, signal.SIGHUP)
                wanted = {port + at for at in range(1 + more)} | {port + 10 + at for at in range(1 + more)}
                await until(
                    lambda wanted=wanted: listening_ports(shoal.pid) == wanted,  # type: ignore[misc]
                    within=WITHIN,
                    what=f"reload {number}: {sorted(wanted)}",
                    process=shoal.process,
                )
            config.write_text("no TOML")
            os.kill(shoal.pid, signal.SIGHUP)
            await shoal.until_logged("is not reloaded, the former one stays in use: ", within=WITHIN)
            assert listening_ports(shoal.pid) == wanted
        nursery.cancel_scope.cancel()
