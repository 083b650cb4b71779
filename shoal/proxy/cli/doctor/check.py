"""All rules for all flows that use Shoal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.destinations import client_address
from shoal.proxy.cli.doctor.exactly_once_rules import check_exactly_once
from shoal.proxy.cli.doctor.finding import Case, Finding, Severity
from shoal.proxy.cli.doctor.mirror_rules import (
    check_converters,
    check_heartbeats,
    check_ignored,
    check_java,
    check_loop,
    check_policy,
    check_tolerance,
    check_topic_codec,
    check_transforms,
)
from shoal.proxy.cli.doctor.security_rules import check_security
from shoal.proxy.cli.doctor.value_rules import check_numbers, check_spelling, check_values
from shoal.proxy.cli.doctor.wiring_rules import check_wiring, is_beside_another, is_meant

if TYPE_CHECKING:
    from shoal.proxy.cli.doctor.destinations import ShoalListeners
    from shoal.proxy.cli.doctor.mirror import Mirror, ReplicationFlow

__all__ = ["RULES", "Report", "check_mirror"]

RULES = (
    check_wiring,
    check_security,
    check_spelling,
    check_numbers,
    check_values,
    check_exactly_once,
    check_converters,
    check_transforms,
    check_ignored,
    check_heartbeats,
    check_policy,
    check_tolerance,
    check_loop,
    check_topic_codec,
    check_java,
)
_ORDER = list(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    mirror: Mirror
    shoal: ShoalListeners
    flows: tuple[ReplicationFlow, ...]  # that were checked
    findings: tuple[Finding, ...]  # the most severe first

    @property
    def must_change(self) -> bool:
        return any(finding.severity is Severity.MUST for finding in self.findings)


def check_mirror(mirror: Mirror, shoal: ShoalListeners) -> Report:
    """Flows with no client at Shoal are not checked, unless there is only one flow."""
    flows = tuple(flow for flow in mirror.flows if is_meant(flow, shoal)) or mirror.flows
    findings = _repeated(mirror)
    if len(flows) > 1 and not any(is_meant(flow, shoal) for flow in flows):
        findings.append(_which(flows, shoal))
        flows = ()
    for flow in flows:
        case = Case(flow=flow, flows=mirror.flows, shoal=shoal)
        rules = (check_wiring,) if is_beside_another(case) else RULES
        findings += [finding for rule in rules for finding in rule(case)]
    findings += [_untouched(flow) for flow in mirror.flows if flows and flow not in flows]
    findings.sort(key=lambda finding: _ORDER.index(finding.severity))
    return Report(mirror=mirror, shoal=shoal, flows=flows, findings=tuple(dict.fromkeys(findings)))


def _repeated(mirror: Mirror) -> list[Finding]:
    return [
        Finding(
            severity=Severity.SHOULD,
            flow="",
            at=ignored,
            why=f"is overridden by line {taken.line}: {taken}",
            remove=(ignored,),
        )
        for ignored, taken in mirror.repeated
    ]


def _which(flows: tuple[ReplicationFlow, ...], shoal: ShoalListeners) -> Finding:
    names = ", ".join(flow.name for flow in flows)
    first = flows[0]
    return Finding(
        severity=Severity.MUST,
        flow="",
        at=f"flows {names}",
        why=f"no flow goes through Shoal: add two lines for the flow that should, for example {first.name}",
        write=(
            (first.key("consumer", "bootstrap.servers"), client_address(shoal.wrap)),
            (first.key("producer", "bootstrap.servers"), client_address(shoal.unwrap)),
        ),
    )


def _untouched(flow: ReplicationFlow) -> Finding:
    why = "does not go through Shoal: mirrored as before"
    return Finding(severity=Severity.NOTE, flow=flow.name, at=f"flow {flow.name}", why=why)
