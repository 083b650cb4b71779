from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from confluent_kafka.admin import AclBinding, AclBindingFilter, AclPermissionType, AdminClient, ResourcePatternType

from shoal.scenarios.kafka.content.clients import client_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka.admin import AclOperation, ResourceType

    from shoal.scenarios.kafka.broker import Cluster

__all__ = ["allow"]

_IN_TIME = 30.0


def allow(
    broker: Cluster,
    kind: ResourceType,
    name: str,
    rights: Sequence[tuple[str, AclOperation]],
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    """`rights`: users and what they may do. Returns when the cluster's only broker knows it: its controller answers
    before it has applied new ACLs.
    """
    wanted = [(kind, name, pattern, f"User:{user}", "*", right, AclPermissionType.ALLOW) for user, right in rights]
    admin = AdminClient(client_config(broker.bootstrap))
    for done in admin.create_acls([AclBinding(*one) for one in wanted]).values():
        done.result(_IN_TIME)
    deadline = monotonic() + _IN_TIME
    for one in wanted:
        while not admin.describe_acls(AclBindingFilter(*one)).result(_IN_TIME):
            assert monotonic() < deadline, f"the broker does not get to know {one}"
