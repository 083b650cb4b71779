"""When a broker is probed again, and which proofs are dropped when its connections are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.multibatch.known_proofs import LOSS_SECONDS, RETRY_SECONDS, KnownProofs
from shoal.protocol.multibatch.proof import Identity, Proof, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

ME = Identity(cluster_id="c", node_id=1, host="h", port=9092, apis=((0, 3, 12),))


def proof(result: Result, *, closed: bool = False) -> Proof:
    return Proof(result=result, why=f"is {result}", identity=ME, closed=closed)


def knowing(result: Result, *, closed: bool = False) -> KnownProofs:
    known = KnownProofs()
    assert known.learned(1, proof(result, closed=closed), 0.0)
    return known


def test_a_broker_of_which_nothing_is_known_is_asked() -> None:
    assert KnownProofs().may_ask(1, 0.0)
    assert KnownProofs().lasting(ME) is None


def test_a_proof_holds_for_the_same_broker_until_a_connection_is_lost() -> None:
    known = knowing(Result.PROVEN)
    assert known.lasting(ME) == proof(Result.PROVEN)
    known.lost(1, 5.0)
    assert known.lasting(ME) is None
    assert known.may_ask(1, 5.0)


def test_a_proof_is_none_for_another_broker_of_the_same_id() -> None:
    other = Identity(cluster_id="c", node_id=1, host="h", port=9092, apis=((0, 3, 11),))
    assert knowing(Result.PROVEN).lasting(other) is None
    assert knowing(Result.UNSAFE).lasting(other) is None


@pytest.mark.parametrize("result", [Result.REFUSED, Result.UNKNOWN, Result.UNSAFE])
def test_anything_else_is_asked_again_after_a_while(result: Result) -> None:
    known = knowing(result)
    assert not known.may_ask(1, RETRY_SECONDS - 1)
    assert known.may_ask(1, RETRY_SECONDS)


def test_a_refusing_broker_that_came_back_is_asked_sooner() -> None:
    known = knowing(Result.REFUSED)
    known.lost(1, 10.0)
    assert not known.may_ask(1, 10.0 + LOSS_SECONDS - 1)
    assert known.may_ask(1, 10.0 + LOSS_SECONDS)
    known.lost(1, 10.0 + LOSS_SECONDS)
    assert known.may_ask(1, 10.0 + LOSS_SECONDS), "connections that come and go do not put it off"


def test_a_broker_that_closes_on_sets_is_not_asked_by_every_new_connection() -> None:
    known = knowing(Result.REFUSED, closed=True)
    known.lost(1, 1.0)
    assert not known.may_ask(1, RETRY_SECONDS - 1)


def test_an_unsafe_broker_stays_unsafe_while_it_is_the_same() -> None:
    known = knowing(Result.UNSAFE)
    known.lost(1, 1.0)
    assert known.lasting(ME) == proof(Result.UNSAFE)


def test_a_withdrawn_proof_is_a_refusal() -> None:
    known = knowing(Result.PROVEN)
    assert known.withdrawn(1, "error 87", 5.0)
    assert known.lasting(ME) is None
    assert not known.may_ask(1, RETRY_SECONDS)
    assert known.may_ask(1, 5.0 + RETRY_SECONDS)


def test_only_news_are_told() -> None:
    known = knowing(Result.PROVEN)
    known.lost(1, 1.0)
    assert not known.learned(1, proof(Result.PROVEN), 2.0)
    assert known.learned(2, proof(Result.PROVEN), 2.0)
    assert known.learned(1, proof(Result.REFUSED), 3.0)
    assert not known.learned(1, proof(Result.REFUSED), 4.0)
    assert known.learned(1, proof(Result.PROVEN), 5.0)


EVENTS = st.one_of(
    st.tuples(st.just("learned"), st.sampled_from(Result), st.booleans()),
    st.tuples(st.just("lost")),
    st.tuples(st.just("withdrawn")),
)


@given(st.lists(EVENTS, max_size=12))
def test_nothing_but_a_proof_since_the_last_loss_counts_as_proven(events: Sequence[tuple[object, ...]]) -> None:
    known, proven = KnownProofs(), False
    for now, (what, *details) in enumerate(events):
        if what == "learned":
            result, closed = Result(str(details[0])), bool(details[1])
            known.learned(1, proof(result, closed=closed and result is not Result.PROVEN), float(now))
            proven = result is Result.PROVEN
        elif what == "lost":
            known.lost(1, float(now))
            proven = False
        else:
            known.withdrawn(1, "why", float(now))
            proven = False
        found = known.lasting(ME)
        assert (found is not None and found.proven) is proven
