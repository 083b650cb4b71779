"""`shoal promote` against brokers on real sockets: what it refuses, what it changes, and when it is done."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.cli import main as shoal
from shoal.proxy.cli.promote.promotion import Options, Outcome, Refused, promote_topics
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, ClusterSettings, Limits
from tests.support.mirror_topics import MirrorBrokers
from tests.support.rig import FakeBroker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.rig import BrokerSide

THREE = {("orders", 0): 1, ("orders", 1): 2, ("orders", 2): 3}
TWO_TOPICS = {("orders", 0): 1, ("orders", 1): 2, ("payments", 0): 2}


async def promote(here: MirrorBrokers, names: Sequence[str] = ("orders",), **options: Any) -> Outcome:
    settings = ClusterSettings(name="brokers", bootstrap=(here.bootstrap,))
    options = {"seconds": 5.0, "quiet_seconds": 0.0, "pause_seconds": 0.01, **options}
    return await promote_topics(settings, Limits(), names, Options(**options))


async def refusal(here: MirrorBrokers, kind: type[OperatorError] = OperatorError, **options: Any) -> str:
    """The text of the error; nothing is changed."""
    async with here.running():
        with pytest.raises(OperatorError) as raised:
            await promote(here, **options)
    assert type(raised.value) is kind
    assert here.changes == []
    assert here.promoted == {}
    return str(raised.value)


# -- it promotes


async def test_every_leader_confirms() -> None:
    async with MirrorBrokers(THREE, ends=Counter({("orders", 0): 12, ("orders", 2): 7})).running() as here:
        outcome = await promote(here)
        assert outcome == Outcome(
            lines=("orders: promoted on 3 brokers, 3 partitions; end offsets 0:12 1:0 2:7",), is_confirmed=True
        )
        topic_id = urlsafe_b64encode(here.ids["orders"].bytes).decode().rstrip("=")
        assert here.promoted == {"orders": topic_id}
        assert here.changes == [("shoal.mirror.promoted.orders", False)]


async def test_several_topics_are_promoted_by_one_request() -> None:
    async with MirrorBrokers(TWO_TOPICS).running() as here:
        outcome = await promote(here, ["payments", "orders"])
        assert [line.partition(";")[0] for line in outcome.lines] == [
            "orders: promoted on 2 brokers, 2 partitions",
            "payments: promoted on 1 broker, 1 partition",
        ]
        assert set(here.promoted) == {"orders", "payments"}


async def test_brokers_that_learn_it_late_are_asked_until_they_know() -> None:
    async with MirrorBrokers(THREE, late=Counter({3: 3})).running() as here:
        assert (await promote(here)).is_confirmed
        assert here.probes[("orders", 2)] == 2 + 3 + 1
        assert here.probes[("orders", 0)] == 2 + 1, "a leader that has confirmed is not asked again"


async def test_a_new_leader_is_asked() -> None:
    async with MirrorBrokers(THREE, moves={("orders", 0): 3}).running() as here:
        (line,) = (await promote(here)).lines
        assert line.startswith("orders: promoted on 2 brokers, 3 partitions")


async def test_a_topic_that_is_promoted_already_is_fine() -> None:
    async with MirrorBrokers(TWO_TOPICS, promoted={"orders": "id"}).running() as here:
        assert await promote(here) == Outcome(lines=("orders: promoted already on 2 brokers, 2 partitions",))
        assert here.changes == []
        outcome = await promote(here, ["orders", "payments"])
        assert [line.partition(" on")[0] for line in outcome.lines] == [
            "orders: promoted already",
            "payments: promoted",
        ]
        assert here.changes == [("shoal.mirror.promoted.payments", False)]


async def test_a_topic_of_which_some_leaders_know_already_is_promoted_again() -> None:
    async with MirrorBrokers(THREE, promoted={"orders": "id"}, late=Counter({2: 4})).running() as here:
        outcome = await promote(here)
        assert outcome.is_confirmed
        assert here.changes == [("shoal.mirror.promoted.orders", False)]


async def test_a_dry_run_changes_nothing() -> None:
    async with MirrorBrokers(THREE).running() as here:
        outcome = await promote(here, dry_run=True)
        assert outcome == Outcome(lines=("orders: can be promoted; end offsets 0:0 1:0 2:0",))
        assert here.changes == [("shoal.mirror.promoted.orders", True)]
        assert here.promoted == {}


async def test_a_leader_change_before_the_promotion_is_waited_for() -> None:
    moving = {("orders", 1): [ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available]}
    async with MirrorBrokers(THREE, answers=moving).running() as here:
        assert (await promote(here)).is_confirmed


# -- it refuses


async def test_a_mirror_that_writes_is_refused() -> None:
    here = MirrorBrokers(THREE, growing={("orders", 1)}, ends=Counter({("orders", 1): 40}))
    assert await refusal(here, Refused) == (
        "orders-1: the mirror still writes: the end offset grew from 41 to 42; nothing is changed: stop the mirror "
        "first, or --force"
    )


async def test_force_promotes_while_the_mirror_writes() -> None:
    async with MirrorBrokers(THREE, growing={("orders", 1)}).running() as here:
        assert (await promote(here, force=True)).is_confirmed


async def test_a_broker_without_the_agent_is_named() -> None:
    here = MirrorBrokers({**THREE, ("orders", 3): 2}, without_agent={2})
    text = await refusal(here, Refused)
    assert text == (
        f"orders-1, orders-3: broker 2 ({here.brokers[2].address}): not a mirror topic there: the broker has no agent, "
        "or shoal.mirror.topics does not match the topic; nothing is changed"
    )


async def test_one_wrong_topic_promotes_none() -> None:
    text = await refusal(MirrorBrokers(TWO_TOPICS), names=["orders", "paymnets"])
    assert text == "paymnets: the cluster has no such topic; nothing is changed"


async def test_a_partition_without_a_leader_is_named() -> None:
    text = await refusal(MirrorBrokers({**THREE, ("orders", 1): -1}))
    assert text == "orders-1: has no leader now: nothing is changed"


async def test_many_partitions_are_not_all_named() -> None:
    text = await refusal(MirrorBrokers({("orders", index): -1 for index in range(12)}))
    assert text.startswith("orders-0, orders-1, orders-2, orders-3, orders-4 and 7 more: has no leader")


async def test_a_leader_that_is_silent_is_named() -> None:
    here = MirrorBrokers(THREE, mute={3})
    text = await refusal(here, seconds=0.3)
    assert text == f"orders-2: broker 3 ({here.brokers[3].address}): no answer within 0.3 s; nothing is changed"


async def test_the_brokers_own_words_are_reported() -> None:
    here = MirrorBrokers(THREE, answers={("orders", 0): [ErrorCode.topic_authorization_failed]})
    text = await refusal(here)
    assert f"broker 1 ({here.brokers[1].address}): error 29 (TOPIC_AUTHORIZATION_FAILED): as scripted" in text


async def test_a_leader_change_without_end_is_given_up() -> None:
    here = MirrorBrokers(THREE, answers={("orders", 0): [ErrorCode.not_leader_or_follower] * 1000})
    assert "error 6 (NOT_LEADER_OR_FOLLOWER)" in await refusal(here, seconds=0.2)


async def test_a_controller_that_refuses_is_reported() -> None:
    async with MirrorBrokers(THREE, alter_error=ErrorCode.cluster_authorization_failed).running() as here:
        with pytest.raises(OperatorError) as raised:
            await promote(here)
        assert str(raised.value) == (
            "orders: error 31 (CLUSTER_AUTHORIZATION_FAILED): so says the controller; the login needs ALTER_CONFIGS on "
            "the cluster; nothing is changed"
        )
        assert here.promoted == {}


@pytest.mark.parametrize("lost", [{"closes_on_alter": True}, {"alter_error": ErrorCode.request_timed_out}])
async def test_a_change_without_an_answer_may_have_happened(lost: dict[str, Any]) -> None:
    async with MirrorBrokers(THREE, **lost).running() as here:
        with pytest.raises(OperatorError, match="not known whether they are promoted: run shoal promote again"):
            await promote(here)


async def test_no_broker_is_an_operators_error() -> None:
    settings = ClusterSettings(name="brokers", bootstrap=(Address("127.0.0.1", 1),))
    with pytest.raises(OperatorError, match=r"^127\.0\.0\.1:1: cannot reach the broker"):
        await promote_topics(settings, Limits(), ["orders"], Options(seconds=5))


@pytest.mark.parametrize(("answer", "text"), [(b"", "may require TLS"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP")])
async def test_ports_of_others_are_operators_errors(answer: bytes, text: str) -> None:
    async def other(side: BrokerSide, frame: bytes) -> None:
        await side.send(answer) if answer else await side.stream.aclose()

    fake = FakeBroker(other)
    async with trio.open_nursery() as nursery:
        await nursery.start(fake.run)
        settings = ClusterSettings(name="brokers", bootstrap=(fake.address,))
        with pytest.raises(OperatorError, match=text):
            await promote_topics(settings, Limits(), ["orders"], Options(seconds=5))
        nursery.cancel_scope.cancel()


# -- time is over


async def test_brokers_that_have_not_confirmed_are_named() -> None:
    async with MirrorBrokers(TWO_TOPICS, late=Counter({2: 1000})).running() as here:
        outcome = await promote(here, ["orders", "payments"], seconds=0.3)
        two = f"broker 2 ({here.brokers[2].address})"
        assert outcome == Outcome(
            lines=(
                "orders: its key is set, but not confirmed by all brokers within 0.3 s:",
                f"  orders-1: {two}: a mirror topic, not promoted yet",
                "  shoal promote again asks the brokers again",
                "payments: its key is set, but not confirmed by all brokers within 0.3 s:",
                f"  payments-0: {two}: a mirror topic, not promoted yet",
                "  shoal promote again asks the brokers again",
            ),
            is_confirmed=False,
        )


async def test_a_new_leader_without_the_agent_does_not_confirm() -> None:
    async with MirrorBrokers(THREE, moves={("orders", 0): 4}, without_agent={4}).running() as here:
        outcome = await promote(here, seconds=0.3)
        assert not outcome.is_confirmed
        assert f"  orders-0: broker 4 ({here.brokers[4].address}): error 87 (INVALID_RECORD)" in outcome.lines


async def test_a_partition_that_loses_its_leader_is_named() -> None:
    async with MirrorBrokers(THREE, moves={("orders", 0): -1}).running() as here:
        outcome = await promote(here, seconds=0.3)
        assert not outcome.is_confirmed
        assert "  orders-0: has no leader" in outcome.lines


# -- the command


def run(here: MirrorBrokers, *arguments: str) -> int:
    """In a thread beside the brokers."""
    return trio.run(_run, here, arguments)


async def _run(here: MirrorBrokers, arguments: Sequence[str]) -> int:
    async with here.running():
        command = ["promote", "orders", "--bootstrap", str(here.bootstrap), *arguments]
        return await trio.to_thread.run_sync(shoal, command)


def test_exit_code_of_a_promotion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(MirrorBrokers(THREE), "--force") == 0
    assert capsys.readouterr().out == "orders: promoted on 3 brokers, 3 partitions; end offsets 0:0 1:0 2:0\n"


def test_exit_code_of_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(MirrorBrokers(THREE, without_agent={1}), "--force") == 1
    assert capsys.readouterr().err.startswith("shoal: error: orders-0: broker 1 (")


def test_exit_code_of_a_wrong_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(MirrorBrokers({("other", 0): 1})) == 2
    assert capsys.readouterr().err == "shoal: error: orders: the cluster has no such topic; nothing is changed\n"


def test_exit_code_without_confirmation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(MirrorBrokers(THREE, late=Counter({1: 1000})), "--force", "--seconds", "2") == 5
    assert "not confirmed by all brokers within 2 s" in capsys.readouterr().out


def test_a_cluster_of_a_file_is_used(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    async def with_file() -> int:
        async with MirrorBrokers(THREE).running() as here:
            file = tmp_path / "shoal.toml"
            cluster = f'[[cluster]]\nname = "target"\nbootstrap = "{here.bootstrap}"\n'
            listener = (
                '[[listener]]\nname = "l"\ncluster = "target"\nlisten = "127.0.0.1:39092"\nports = "39093-39099"\n'
            )
            file.write_text(cluster + listener)
            return await trio.to_thread.run_sync(shoal, ["promote", "orders", "-c", str(file), "--dry-run", "--force"])

    assert trio.run(with_file) == 0
    assert capsys.readouterr().out.startswith("orders: can be promoted; ")
