"""Blocks of an index file: intact ones are read, whatever the damage to their neighbours."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.index.blocks import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    Block,
    BlockType,
    Damaged,
    Torn,
    encode_block,
    encode_names,
    encode_object,
    read_blocks,
    read_names,
    read_object,
)
from shoal.protocol.wire.errors import RemoteProtocolError

_PAYLOADS = st.lists(st.binary(max_size=60), min_size=1, max_size=6)


def _payloads(data: bytes) -> list[bytes]:
    return [bytes(one.payload) for one in read_blocks(data) if isinstance(one, Block)]


@given(_PAYLOADS)
def test_blocks_come_back(payloads: list[bytes]) -> None:
    data = b"".join(encode_block(BlockType.ROWS, payload) for payload in payloads)
    blocks = list(read_blocks(data))

    assert [bytes(block.payload) for block in blocks if isinstance(block, Block)] == payloads
    assert len(blocks) == len(payloads)


@given(_PAYLOADS, st.data())
def test_a_torn_end_costs_the_last_block_and_says_where_to_go_on(payloads: list[bytes], draw: st.DataObject) -> None:
    whole = b"".join(encode_block(BlockType.ROWS, payload) for payload in payloads[:-1])
    last = encode_block(BlockType.ROWS, payloads[-1])
    cut = draw.draw(st.integers(1, len(last) - 1))
    *before, torn = read_blocks(whole + last[:cut])

    assert len(before) == len(payloads) - 1
    assert torn == Torn(len(whole))
    assert _payloads((whole + last)[torn.start :]) == payloads[-1:]


@given(_PAYLOADS, st.data())
def test_a_changed_byte_costs_one_block(payloads: list[bytes], draw: st.DataObject) -> None:
    blocks = [encode_block(BlockType.ROWS, payload) for payload in payloads]
    hit = draw.draw(st.integers(0, len(blocks) - 1))
    data = bytearray(b"".join(blocks) + encode_block(BlockType.STATE, b"{}"))
    start = sum(map(len, blocks[:hit]))
    at = start + draw.draw(st.integers(0, len(blocks[hit]) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    results = list(read_blocks(data))

    assert Damaged(start, start + len(blocks[hit])) in results
    assert _payloads(bytes(data)) == [*payloads[:hit], *payloads[hit + 1 :], b"{}"]


@given(st.binary(max_size=300))
def test_anything_else_is_damage_up_to_its_end(data: bytes) -> None:
    results = list(read_blocks(data))

    assert bool(results) == bool(data)
    assert not any(isinstance(result, Block) for result in results)


def test_positions_are_those_of_the_file() -> None:
    first, second = encode_block(BlockType.ROWS, b"a"), encode_block(BlockType.ROWS, b"bb")
    assert [one.start for one in read_blocks(first + second, len(first), base=100)] == [100 + len(first)]


def test_a_length_above_the_limit_is_damage_not_a_torn_end() -> None:
    data = bytearray(encode_block(BlockType.ROWS, b"abc"))
    data[8:12] = (MAX_PAYLOAD + 1).to_bytes(4, "little")
    assert list(read_blocks(data)) == [Damaged(0, len(data))]
    with pytest.raises(ValueError, match="a block of"):
        encode_block(BlockType.ROWS, bytes(MAX_PAYLOAD + 1))


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.text(max_size=20)))
def test_names_come_back(names: dict[int, str]) -> None:
    expected = {number: name.encode("utf-8", "replace").decode() for number, name in names.items()}
    assert read_names(encode_names(names)[HEADER_SIZE:]) == expected


@given(st.binary(max_size=40))
def test_damaged_names_and_objects_are_told(data: bytes) -> None:
    for read in (read_names, read_object):
        with suppress(RemoteProtocolError):
            assert isinstance(read(data), dict)


def test_an_object_comes_back() -> None:
    (block,) = read_blocks(encode_object(BlockType.START, {"version": 1, "tags": {"team": "a"}}))
    assert isinstance(block, Block)
    assert read_object(block.payload) == {"version": 1, "tags": {"team": "a"}}
