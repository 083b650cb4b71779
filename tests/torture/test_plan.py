"""A seed always gives the same plan; a plan is sound, and survives JSON."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.torture.clients.records import SHAPES

from .draw import LAST_FAULT, make_plan
from .faults import INJECTIONS
from .plan import DOWN, TARGET, FaultPlan, Plan, crowded, from_json, to_json

seeds = st.integers(min_value=0, max_value=2**32)


@given(seeds)
def test_the_same_seed_is_the_same_plan(seed: int) -> None:
    assert make_plan(seed) == make_plan(seed)


@given(seeds)
def test_a_plan_survives_json(seed: int) -> None:
    plan = make_plan(seed)
    assert from_json(to_json(plan)) == plan


@given(seeds)
def test_every_part_of_a_plan_is_there(seed: int) -> None:
    plan = make_plan(seed)
    clusters = {cluster.name for cluster in plan.clusters}
    assert {mirror.source for mirror in plan.mirrors} | {TARGET} == clusters
    assert {(producer.cluster, producer.topic) for producer in plan.producers} == {topic.key for topic in plan.topics}
    assert {producer.shape for producer in plan.producers} <= SHAPES.keys()
    assert len({producer.number for producer in plan.producers}) == len(plan.producers)
    assert plan.kinds() <= INJECTIONS.keys()
    assert [fault.at for fault in plan.faults] == sorted(fault.at for fault in plan.faults)
    assert all(0 < fault.at <= LAST_FAULT for fault in plan.faults)


@given(seeds)
def test_no_two_brokers_are_away_where_there_are_transactions(seed: int) -> None:
    plan = make_plan(seed)
    for name in (cluster.name for cluster in plan.clusters if plan.transactional(cluster.name)):
        away = [fault for fault in plan.faults if fault.kind in DOWN and fault.where.split(":")[1] == name]
        assert not away or plan.cluster(name).nodes >= 3
        assert all(later.at > sooner.end for sooner, later in itertools.pairwise(away))


@given(seeds)
@settings(deadline=None)
def test_any_twenty_seeds_in_a_row_have_every_kind_of_fault(seed: int) -> None:
    assert frozenset().union(*(make_plan(one).kinds() for one in range(seed, seed + 20))) == INJECTIONS.keys()


def test_no_kind_of_fault_is_rare() -> None:
    counts = Counter(fault.kind for seed in range(500) for fault in make_plan(seed).faults)
    assert max(counts.values()) < 3 * min(counts.values())


def test_parts_of_shoal_that_are_not_the_mirror_s_are_drawn() -> None:
    plans = [make_plan(seed) for seed in range(100)]
    for drawn in (
        lambda plan: plan.shoal.one_unwrap,
        lambda plan: plan.shoal.capture,
        lambda plan: plan.shoal.same_offsets,
        lambda plan: any(producer.coalesced for producer in plan.producers),
    ):
        assert sum(map(drawn, plans)) >= 5


def exactly_once() -> Plan:
    plans = map(make_plan, range(100))
    return next(plan for plan in plans if plan.mirrors[0].exactly_once)


def test_a_second_broker_waits_for_the_first_to_be_back() -> None:
    plan = exactly_once()
    first = FaultPlan(at=5, kind="kill-broker", where="broker:B:1", seconds=3)
    soon = FaultPlan(at=9, kind="pause-broker", where="broker:B:2", seconds=1)
    late = FaultPlan(at=25, kind="pause-broker", where="broker:B:2", seconds=1)
    assert crowded(plan, [first], soon)
    assert not crowded(plan, [first], late)
    assert not crowded(plan, [first], FaultPlan(at=5, kind="kill-shoal", where="shoal"))
    assert crowded(plan, [first], FaultPlan(at=9, kind="cut-link", where="link:inside:B", seconds=1))
    assert not crowded(plan, [first], FaultPlan(at=9, kind="cut-link", where="link:B", seconds=1))
