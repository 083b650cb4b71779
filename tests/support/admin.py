"""A client of the admin listener."""

from __future__ import annotations

import json
from typing import Any

import h11
import trio

__all__ = ["ask", "get_json", "scrape", "values"]


async def ask(port: int, path: str, accept: str = "", *, host: str = "127.0.0.1") -> tuple[int, bytes]:
    """-> status and body, over a connection of its own."""
    client = h11.Connection(h11.CLIENT)
    headers = [("Host", "admin"), ("Accept", accept), ("Connection", "close")]
    with trio.fail_after(20):
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(client.send(h11.Request(method="GET", target=path, headers=headers)) or b"")
            status, body = 0, bytearray()
            while not isinstance(event := client.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    client.receive_data(bytes(await stream.receive_some()))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
    return status, bytes(body)


async def get_json(port: int, path: str) -> Any:
    _, body = await ask(port, path)
    return json.loads(body)


async def scrape(port: int) -> bytes:
    status, text = await ask(port, "/metrics")
    assert status == 200, text
    return text


def values(text: bytes) -> dict[tuple[str, ...], float]:
    """(name, values of its labels in the order of their names) -> number."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
