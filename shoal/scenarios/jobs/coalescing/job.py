"""`coalescing`: the tables `brokers` (by policy and broker) and `policies`, and their page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.jobs.coalescing.analysis import LOGINS, packing, predictions, summed
from shoal.scenarios.jobs.coalescing.policies import POLICIES
from shoal.scenarios.jobs.coalescing.prediction import OPEN_LOOP
from shoal.scenarios.jobs.coalescing.report import coalescing_report
from shoal.scenarios.jobs.folding import fold_files
from shoal.scenarios.jobs.output.finish import finish
from shoal.scenarios.jobs.output.tables import fault_facts, kept, listed
from shoal.scenarios.jobs.source.reading import read_faults

if TYPE_CHECKING:
    from shoal.scenarios.jobs.task import Task

__all__ = ["run"]


def run(task: Task) -> int:
    policies, by_joiner = tuple(dict.fromkeys(task.flags.policy)) or POLICIES, task.flags.joiner
    logged_in = fold_files(task.spark, task.source, task.options, LOGINS)
    packed = fold_files(task.spark, task.source, task.options, packing(logged_in))
    predicted = kept(predictions(packed, policies, by_joiner=by_joiner), task.out, "brokers")
    table = listed(kept(summed(predicted), task.out, "policies"))
    nodes = listed(
        summed(predicted.where(predicted.policy == policies[0].name), ["cluster", "node"]), "cluster", "node"
    )
    faults = fault_facts(read_faults(task.spark, task.source))
    finish(task, coalescing_report(table, nodes, [policy.name for policy in policies], faults))
    print(OPEN_LOOP)
    return 0
