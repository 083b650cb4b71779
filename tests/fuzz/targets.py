"""Every target, by name."""

from tests.fuzz.decoders import (
    capture,
    coalesce,
    frames,
    groups,
    legacy_down,
    legacy_talk,
    legacy_up,
    mirror_topics,
    multibatch,
    records,
    sasl_server,
    shallow,
)

__all__ = ["TARGETS"]

TARGETS = {
    target.name: target
    for target in (
        *records.TARGETS,
        *sasl_server.TARGETS,
        *frames.TARGETS,
        *shallow.TARGETS,
        *coalesce.TARGETS,
        *multibatch.TARGETS,
        *mirror_topics.TARGETS,
        *groups.TARGETS,
        *capture.TARGETS,
        *legacy_up.TARGETS,
        *legacy_down.TARGETS,
        *legacy_talk.TARGETS,
    )
}
