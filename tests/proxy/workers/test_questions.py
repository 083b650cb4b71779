from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.workers.links import Link, Message, Word
from shoal.proxy.workers.questions import LATE_SECONDS, NoAnswer, Questions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trio.testing import MockClock

_WITHIN = 0.7


class SlowWorker:
    """Answers each question with the count of those so far, `seconds` after it has come."""

    def __init__(self, link: Link) -> None:
        self.seconds = 0.0
        self.asked: list[Word] = []
        self._link = link

    async def run(self) -> None:
        async with trio.open_nursery() as self._tasks:
            await self._link.run(self._hear)

    def _hear(self, message: Message) -> None:
        self.asked.append(message.word)
        self._tasks.start_soon(self._answer, message.number, len(self.asked))

    async def _answer(self, number: int, value: int) -> None:
        await trio.sleep(self.seconds)
        self._link.put(Word.ANSWER, value, number)


@asynccontextmanager
async def asked_one() -> AsyncGenerator[tuple[Questions, SlowWorker]]:
    one, other = (trio.SocketStream(trio.socket.from_stdlib_socket(sock)) for sock in socket.socketpair())
    link = Link(one)
    questions, worker = Questions(link), SlowWorker(Link(other))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, lambda message: questions.answered(message.number, message.value))
        nursery.start_soon(worker.run)
        yield questions, worker
        nursery.cancel_scope.cancel()


async def test_who_asks_the_same_at_once_gets_the_same_answer(autojump_clock: MockClock) -> None:
    found: list[object] = []

    async def ask() -> None:
        found.append(await questions.ask(Word.COUNTERS, None, within=_WITHIN))

    async with asked_one() as (questions, worker):
        worker.seconds = 0.5
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert found == [1, 1, 1]
        assert await questions.ask(Word.COUNTERS, None, within=_WITHIN) == 2  # the first one's answer is used


@pytest.mark.parametrize("every", [0.1, 5.0, 10.0])
async def test_a_worker_that_always_answers_late_is_heard(autojump_clock: MockClock, every: float) -> None:
    """Each time but the first, by its answer to the question before."""
    async with asked_one() as (questions, worker):
        worker.seconds = 0.75
        await _nothing_from(questions, Word.PAGE, "/readyz")
        for turn in range(1, 5):
            await trio.sleep(every)
            assert await questions.ask(Word.PAGE, "/readyz", within=_WITHIN) == turn


async def test_an_answer_in_time_is_better_than_a_late_one(autojump_clock: MockClock) -> None:
    async with asked_one() as (questions, worker):
        await too_late(questions, worker, "/status")
        worker.seconds = 0.0
        assert await questions.ask(Word.PAGE, "/status", within=_WITHIN) == 2


async def test_a_late_answer_is_for_the_same_question_and_soon(autojump_clock: MockClock) -> None:
    async with asked_one() as (questions, worker):
        await too_late(questions, worker, "/status")
        await too_late(questions, worker, "/clients")
        worker.seconds = 100
        await trio.sleep(LATE_SECONDS)
        await _nothing_from(questions, Word.PAGE, "/status")


async def too_late(questions: Questions, worker: SlowWorker, page: str) -> None:
    worker.seconds = _WITHIN + 0.2
    await _nothing_from(questions, Word.PAGE, page)
    await trio.sleep(1)


async def test_settings_are_never_answered_by_an_earlier_answer(autojump_clock: MockClock) -> None:
    async with asked_one() as (questions, worker):
        worker.seconds = 0.9
        await _nothing_from(questions, Word.USE, {"no": "key"})
        assert await questions.ask(Word.USE, {"no": "key"}, within=1) == 2


async def test_the_end_of_the_worker_is_the_end_of_waiting(autojump_clock: MockClock) -> None:
    async with asked_one() as (questions, worker):
        worker.seconds = 0.9
        async with trio.open_nursery() as nursery:
            for word in (Word.USE, Word.COUNTERS):
                nursery.start_soon(partial(_nothing_from, questions, word, within=10))
            await trio.sleep(0.1)
            questions.end()
        assert trio.current_time() < 0.7
        await _nothing_from(questions, Word.COUNTERS)
        assert sorted(worker.asked) == [Word.COUNTERS, Word.USE]


async def _nothing_from(questions: Questions, word: Word, value: object = None, *, within: float = _WITHIN) -> None:
    with pytest.raises(NoAnswer):
        await questions.ask(word, value, within=within)
