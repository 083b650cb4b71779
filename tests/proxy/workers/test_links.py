from __future__ import annotations

import socket

import pytest
import trio

from shoal.proxy.workers.links import Link, LinkLost, Message, Word


def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    one, other = (trio.socket.from_stdlib_socket(sock) for sock in socket.socketpair())
    return trio.SocketStream(one), trio.SocketStream(other)


async def test_messages_come_in_order_and_whole() -> None:
    one, other = map(Link, pair())
    heard: list[Message] = []
    messages = [Message(Word.PAGE, "x" * size, size) for size in (0, 1, 100_000, 3_000_000)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, heard.append)
        nursery.start_soon(other.run, heard.append)
        for message in messages:
            other.put(*message)
        await other.finish()
        while len(heard) < len(messages):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert heard == messages


async def test_it_ends_with_the_other_end_also_within_a_message() -> None:
    for piece in (b"", b"\0", b"\0\0\0\x09half"):
        stream, other = pair()
        await other.send_all(piece)
        await other.aclose()
        await Link(stream).run(lambda message: pytest.fail(str(message)))


async def test_a_process_that_reads_nothing_gets_no_more_than_so_many() -> None:
    stream, other = pair()
    link = Link(stream, most=3)
    for _ in range(3):
        link.put(Word.REREAD)
    with pytest.raises(LinkLost):
        link.put(Word.REREAD)
    link.try_to_put(Word.REREAD)
    await stream.aclose()
    await other.aclose()
