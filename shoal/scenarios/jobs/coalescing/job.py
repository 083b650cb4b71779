"""`coalescing`: the tables `brokers` (by policy and broker) and `policies`, and their page.

--policy POLICY    such as linger=5ms,sets=64,group=broker (docs/spark.md); repeatable. Without it twelve are compared
--joiner           use the listener's own policy function, batch by batch, not the compiled steps: same result, but slow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.jobs.coalescing.analysis import READS, arrivals, groups, predictions, summed
from shoal.scenarios.jobs.coalescing.policies import POLICIES, Policy, read_policy
from shoal.scenarios.jobs.coalescing.prediction import OPEN_LOOP
from shoal.scenarios.jobs.coalescing.report import coalescing_report
from shoal.scenarios.jobs.errors import JobError
from shoal.scenarios.jobs.report.tables import fault_facts, kept, listed
from shoal.scenarios.jobs.report.write import write_report
from shoal.scenarios.jobs.source.reading import read_faults, read_index
from shoal.scenarios.jobs.task import own_arguments, own_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]


def run(task: Task) -> int:
    policies, by_joiner = _asked(task.arguments)
    rows = read_index(task.spark, task.source, {**task.options, "columns": ",".join(READS)})
    named = groups(rows).join(predictions(arrivals(rows), policies, by_joiner=by_joiner), "group").drop("group")
    predicted = kept(named, task.out, "brokers")
    table = listed(kept(summed(predicted), task.out, "policies"))
    nodes = listed(
        summed(predicted.where(predicted.policy == policies[0].name), ["cluster", "node"]), "cluster", "node"
    )
    faults = fault_facts(read_faults(task.spark, task.source))
    print(write_report(coalescing_report(table, nodes, [policy.name for policy in policies], faults), task.out))
    print(OPEN_LOOP)
    return 0


def _asked(arguments: Sequence[str]) -> tuple[tuple[Policy, ...], bool]:
    parser = own_parser("coalescing")
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--joiner", action="store_true")
    parsed = own_arguments("coalescing", parser, arguments)
    try:
        found = tuple(map(read_policy, dict.fromkeys(parsed.policy)))
    except ValueError as error:
        raise JobError("coalescing", str(error)) from None
    return found or POLICIES, parsed.joiner
