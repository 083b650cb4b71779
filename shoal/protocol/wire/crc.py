"""CRC-32C: checksums of changed or joined bytes, computed without a second pass over them.

A CRC is a polynomial over GF(2) modulo P. Appending n bytes multiplies it by x^(8n), so, with `shift(c, n) = c * x^(8n)
mod P`,

    crc(A || B)          = shift(crc(A), len(B)) ^ crc(B)                       (combine)
    crc(new || B)        = crc(old || B) ^ shift(crc(old) ^ crc(new), len(B))   (patch; old and new of equal length)

(the initial and final inversions cancel out in both). `patch` never reads B: if B was damaged in transit, the patched
checksum is as wrong as the old one, and the broker still refuses the batch. Recomputing would hide the damage.

Multiplying by a fixed x^(8n) is linear in the 32 bits of the checksum: four table look-ups, one per byte. n is split
into its bytes; each has its own table, built on first use (about 0.3 ms): at most 4 * 255 tables of 4 kB. Bits are
reflected, as everywhere in CRC-32C: bit 31 is x^0. A short length needs no table: the checksum function runs over n
zeros, which multiplies by x^(8n), and its inversions are undone.

Measured (2 EPYC vCPUs, CPython 3.11): `shift` takes 0.2 us below 4 kB, then 0.4 us per non-zero byte of the length (0.8
us below 64 kB, 1.2 us below 16 MB); computing a checksum takes 0.15 us + 1 us per 14-25 kB.
"""

from array import array

from crc32c import crc32c

from shoal.protocol.wire.types import Buffer

__all__ = ["Buffer", "combine", "crc32c", "patch", "shift"]

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected (RFC 3720, appendix B.4)
_ONE = 1 << 31  # x^0


def _times_x(value: int) -> int:
    return value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)


def _multiply(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = _times_x(b)
    return product


def _power(exponent: int) -> int:
    """x^exponent mod P."""
    result, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        exponent >>= 1
    return result


class _Tables(dict[int, "array[int]"]):
    """A byte of a length, in place (0x0000AB00) -> 4 * 256 products, by byte of the checksum and its value."""

    def __missing__(self, length: int) -> "array[int]":
        column, columns = _power(8 * length), [0] * 32
        for bit in range(31, -1, -1):
            columns[bit] = column
            column = _times_x(column)
        table = array("I")
        for byte in range(4):
            products = [0]
            for bit in range(8):
                products += [product ^ columns[8 * byte + bit] for product in products]
            table.extend(products)
        self[length] = table
        return table


_tables = _Tables()

_ZEROS = memoryview(bytes(4096))
_INVERTED = 0xFFFFFFFF


def shift(crc: int, length: int) -> int:
    """`crc` after `length` more bytes (0 <= length < 2^32): the linear part only."""
    if not 0 <= length <= 0xFFFFFFFF:
        raise ValueError(f"length {length} is out of range")
    if length < len(_ZEROS):
        return crc32c(_ZEROS[:length], crc ^ _INVERTED) ^ _INVERTED
    mask = 0xFF
    while length:
        digit = length & mask
        if digit:
            table = _tables[digit]
            crc = (
                table[crc & 255]
                ^ table[256 + (crc >> 8 & 255)]
                ^ table[512 + (crc >> 16 & 255)]
                ^ table[768 + (crc >> 24)]
            )
            length ^= digit
        mask <<= 8
    return crc


def combine(crc_a: int, crc_b: int, length_b: int) -> int:
    """The checksum of A || B, from those of A and B."""
    return shift(crc_a, length_b) ^ crc_b


def patch(crc: int, old_head: Buffer, new_head: Buffer, tail_length: int) -> int:
    """The checksum of `new_head` || tail, given `crc`, the checksum of `old_head` || tail.

    `tail_length` is in bytes. Raises ValueError unless both heads have the same length.
    """
    if len(old_head) != len(new_head):
        raise ValueError("old and new head differ in length")
    change = crc32c(old_head) ^ crc32c(new_head)
    return crc ^ shift(change, tail_length) if change else crc
