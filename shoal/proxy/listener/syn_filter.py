"""Addresses that keep opening connections that Shoal refuses: for moments, the kernel drops their further attempts.

    refused ── more than `MOST_REFUSED` of an address between two ticks ──> its SYNs are dropped ── 0.1 s ──> known
    known ── more than `MOST_OF_KNOWN`, within a minute ──> its SYNs are dropped again

A refusal takes some microseconds of the loop, so ten thousand a second delay the requests of working clients. A SYN
that a socket filter (classic BPF) drops takes none. The filter looks at nothing but SYNs: connections that exist are
not affected. The kernel of a dropped client tries again after a second, so a good client of the same address connects
late, where it would have been refused.

The moments are short because an address that may open 20 connections a second gets 20 at once after a second of
silence: each costs far more than a refusal, and many at once delay requests more than the refusals did. No timer ends
a moment, but the next new client of any address, or the next tick.

Where the kernel takes no filter, refusals are all there is.
"""

from __future__ import annotations

import ctypes
import logging
import socket
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final

from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shoal.proxy.listener.addresses import Group

__all__ = ["MOST_OF_KNOWN", "MOST_REFUSED", "SynFilter", "remove_filter"]

log = logging.getLogger("shoal.listener")

MOST_REFUSED: Final = 100
MOST_OF_KNOWN: Final = 5
_SECONDS: Final = 0.1
_KNOWN_SECONDS: Final = 60.0
_MOST_COUNTED: Final = 1000  # addresses between two ticks
_MOST_DROPPED: Final = 64  # addresses in a filter: a jump of BPF is at most 255 instructions long

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # Linux, asm-generic/socket.h
_INSTRUCTION = Struct("HBBI")  # struct sock_filter: code, jump if true, jump if false, operand
_PROGRAM = Struct("HP")  # struct sock_fprog
_LOAD_BYTE, _LOAD_WORD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x15, 0x06
_FLAGS = 13  # in the TCP header, where the data of a filter begins
_SYN, _SYN_ACK = 0x02, 0x12
_IP = 0xFFF00000  # SKF_NET_OFF: offsets in the IP header
_IPV4 = 0x40  # its first byte: version 4
_IPV4_SOURCE, _IPV6_SOURCE = _IP + 12, _IP + 8
_PASS = (_RETURN, 0, 0, 0xFFFFFFFF)
_DROP = (_RETURN, 0, 0, 0)

_Instruction = tuple[int, int, int, int]


class SynFilter:
    """The filter of one listener. `sockets`: those that listen now."""

    def __init__(self, name: str, sockets: Callable[[], Iterable[socket.socket]]) -> None:
        self._name = name
        self._sockets = sockets
        self._refused: dict[Group, int] = {}  # since the last tick
        self._dropped: dict[Group, float] = {}  # until when, the first one first
        self._known: dict[Group, float] = {}  # until when; the oldest first
        self._works = True

    def refused(self, group: Group, now: float) -> bool:
        """Count a refused connection. True: from now on, further ones of this address are dropped."""
        count = self._refused.get(group, 0) + 1
        if count <= (MOST_OF_KNOWN if group in self._known else MOST_REFUSED):
            if count > 1 or len(self._refused) < _MOST_COUNTED:
                self._refused[group] = count
            return False
        if not self._works or group in self._dropped or len(self._dropped) >= _MOST_DROPPED:
            return False
        self._dropped[group] = now + _SECONDS
        self._refused.pop(group, None)
        self._remember(group, now)
        self._apply()
        return self._works

    def arrived(self, now: float) -> None:
        """There is a new client. Addresses whose time is over may connect again."""
        if self._dropped and next(iter(self._dropped.values())) <= now:
            self._dropped = {group: until for group, until in self._dropped.items() if until > now}
            self._apply()

    def _remember(self, group: Group, now: float) -> None:
        self._known.pop(group, None)
        self._known[group] = now + _KNOWN_SECONDS
        if len(self._known) > _MOST_COUNTED:
            del self._known[next(iter(self._known))]

    def tick(self, now: float) -> None:
        """Called every second."""
        self._refused.clear()
        self._known = {group: until for group, until in self._known.items() if until > now}
        self.arrived(now)

    def end(self) -> None:
        """Nothing is dropped any more."""
        if self._dropped:
            self._dropped = {}
            self._apply()

    def _apply(self) -> None:
        code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in _program(self._dropped))
        held = ctypes.create_string_buffer(code, len(code))  # the kernel copies it
        program = _PROGRAM.pack(len(code) // _INSTRUCTION.size, ctypes.addressof(held))
        try:
            for sock in self._sockets():
                if self._dropped:
                    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
                else:
                    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        except OSError as error:
            if self._works:
                text = (
                    f"listener {self._name!r}: this kernel drops no connection attempts ({error.strerror}): Shoal "
                    "refuses each of them itself"
                )
                log.info("syn-filter-unsupported", extra=event(text, listener=self._name, error=error.strerror))
            self._works = False


def remove_filter(sock: socket.socket) -> None:
    """One that a process has left in a socket that others have, too."""
    with suppress(OSError):  # there is none
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def _program(groups: Iterable[Group]) -> Iterator[_Instruction]:
    ipv4 = [int.from_bytes(socket.inet_aton(group), "big") for group in groups if isinstance(group, str)]
    ipv6 = [group for group in groups if isinstance(group, bytes)]
    yield _LOAD_BYTE, 0, 0, _FLAGS
    yield _AND, 0, 0, _SYN_ACK
    yield _JUMP_IF_EQUAL, 1, 0, _SYN
    yield _PASS
    yield _LOAD_BYTE, 0, 0, _IP
    yield _AND, 0, 0, 0xF0
    yield _JUMP_IF_EQUAL, 0, 2 * len(ipv4) + 2, _IPV4
    yield _LOAD_WORD, 0, 0, _IPV4_SOURCE
    for address in ipv4:
        yield _JUMP_IF_EQUAL, 0, 1, address
        yield _DROP
    yield _PASS
    for network in ipv6:  # the first eight bytes of an address
        yield _LOAD_WORD, 0, 0, _IPV6_SOURCE
        yield _JUMP_IF_EQUAL, 0, 3, int.from_bytes(network[:4], "big")
        yield _LOAD_WORD, 0, 0, _IPV6_SOURCE + 4
        yield _JUMP_IF_EQUAL, 0, 1, int.from_bytes(network[4:], "big")
        yield _DROP
    yield _PASS
