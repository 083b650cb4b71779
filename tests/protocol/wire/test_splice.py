import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.wire.errors import LocalProtocolError
from shoal.protocol.wire.splice import Edit, splice


@given(st.data())
def test_edited_ranges_change_and_the_rest_stays(data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
    edits, frame, expected = [], bytes(4), b""
    for number, part in enumerate(kept):
        if number:
            old, new = data.draw(st.binary(max_size=9)), data.draw(st.lists(st.binary(max_size=9), max_size=3))
            edits.append(Edit(len(frame), len(frame) + len(old), new))
            frame += old
            expected += b"".join(new)
        frame += part
        expected += part
    made = b"".join(splice(frame, edits))
    assert made == len(expected).to_bytes(4) + expected


def test_edits_come_in_any_order() -> None:
    frame = bytes(4) + b"abcdef"
    edits = [Edit(8, 10, [b"XY", b"Z"]), Edit(4, 5, [])]
    assert b"".join(splice(frame, edits)) == b"\0\0\0\6bcdXYZ"


@pytest.mark.parametrize("edits", [[(4, 6), (5, 7)], [(4, 6), (4, 6)], [(0, 5)]])
def test_edits_may_not_overlap(edits: list[tuple[int, int]]) -> None:
    with pytest.raises(LocalProtocolError, match="overlap"):
        splice(bytes(10), [Edit(start, end, [b"new"]) for start, end in edits])
