from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.sasl.scram import DIGESTS
from shoal.protocol.sasl.users import BadUsers, ScramHash, Users, check_name, read_users, write_users

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.isprintable)
SIZES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}


@st.composite
def hashes(draw: st.DrawFn) -> dict[str, ScramHash]:
    return {
        mechanism: ScramHash(
            iterations=draw(st.integers(4096, 100_000)),
            salt=draw(st.binary(min_size=1, max_size=30)),
            stored_key=draw(st.binary(min_size=SIZES[mechanism], max_size=SIZES[mechanism])),
            server_key=draw(st.binary(min_size=SIZES[mechanism], max_size=SIZES[mechanism])),
        )
        for mechanism in draw(st.sets(st.sampled_from(sorted(DIGESTS)), min_size=1))
    }


@given(st.dictionaries(NAMES, hashes(), max_size=4), st.binary(min_size=32, max_size=40))
def test_what_is_written_is_read_again(users: dict[str, dict[str, ScramHash]], seed: bytes) -> None:
    made = Users(seed=seed, hashes=users)
    assert read_users(write_users(made)) == made


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(BadUsers):
        read_users(text)


HEADER = "shoal-users-1 " + "A" * 44
LINE = f"SCRAM-SHA-256$4096:c2FsdA==${'A' * 43}=:{'A' * 43}="


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("alice", "line 3 has no hash"),
        (f"alice {LINE.replace('4096', '4095')}", "line 3"),
        (f"alice {LINE.replace('4096', '1000000')}", "line 3"),
        (f"alice {LINE.replace('256', '1')}", "line 3"),
        (f"alice {LINE[:-4]}", "line 3"),
        (f"alice {LINE}\nalice {LINE}", "line 4 repeats a user"),
        (f"a%00b {LINE}", "line 3"),
    ],
)
def test_an_error_names_the_line_and_not_its_content(line: str, what: str) -> None:
    with pytest.raises(BadUsers, match=what) as caught:
        read_users(f"# made by hand\n{HEADER}\n{line}\n".replace("# made by hand\n", "\n"))
    assert "c2Fsd" not in str(caught.value)


@pytest.mark.parametrize("seed", ["", "AAAA", "\ufffd" * 44, "=" * 44])
def test_a_damaged_seed(seed: str) -> None:
    with pytest.raises(BadUsers, match="first line"):
        read_users(f"shoal-users-1 {seed}\n")


def test_a_good_line() -> None:
    assert set(read_users(f"{HEADER}\n# a comment\n\na%20b {LINE}\n").hashes) == {"a b"}


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\0b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ValueError, match="user name"):
        check_name(name)
