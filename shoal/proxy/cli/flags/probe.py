"""The command line of `shoal probe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.command_line import typed
from shoal.proxy.cli.flags.cluster import add_cluster_flags
from shoal.proxy.cli.flags.setting import some_seconds
from shoal.proxy.config.parse import check_topic, parse_addresses

if TYPE_CHECKING:
    import argparse

__all__ = ["PROBE_END", "PROBE_USAGE", "PROBE_WHAT", "add_probe_options"]

PROBE_WHAT = "test whether brokers accept several batches per partition in a produce request"
PROBE_USAGE = "HOST:PORT[,..] | -c shoal.toml [options]"
PROBE_END = """\
what happens:
  On each broker, Shoal creates a scratch topic __shoal-probe-<random> with one
  partition. It produces sets of 2, 5 and 64 batches (all codecs), each in one
  request, then checks the end offset and compares every record. A set with a
  damaged batch must leave nothing. Shoal deletes the topic. This takes one or
  two seconds and some kilobytes. shoal run and shoal mirror do the same over
  their clients' connections before they send the first set.

results:
  PROVEN   every record was stored: Shoal sends sets to this broker
  REFUSED  the broker returned error 87 or 2, or closed the connection: Apache
           Kafka without the agent
  UNSAFE   the broker reported success, but records were lost or wrong
           (Redpanda, librdkafka's mock cluster, ...)
  UNKNOWN  the test failed to run: the next line gives the cause and the remedy

examples:
  shoal probe b1:9092
  shoal probe b1:9092 --json | jq -r .result
  shoal probe b1:9093 --tls-ca ca.pem --sasl-mechanism SCRAM-SHA-512 \\
              --sasl-username mirror --sasl-password-file mirror.password
  # address, TLS and login of a cluster in shoal.toml
  shoal probe -c shoal.toml --cluster target
  # an existing topic with a partition on every broker
  shoal probe b1:9092 --topic shoal-probe

exit codes: 0 all brokers proven, 1 a broker refuses, 4 a broker is unsafe,
            5 a broker could not be tried, 2 wrong arguments or no broker
            reachable, 3 error in Shoal itself
"""

_SECONDS = 30.0


def add_probe_options(parser: argparse.ArgumentParser) -> None:
    what = "bootstrap brokers (default: those of -c)"
    parser.add_argument("bootstrap", nargs="?", type=typed(parse_addresses), metavar="HOST:PORT[,..]", help=what)
    what = "existing topic to use instead of a scratch topic"
    parser.add_argument("--topic", type=typed(check_topic), metavar="NAME", help=what)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    what = f"timeout per broker, in seconds (default: {_SECONDS:g})"
    parser.add_argument("--seconds", type=typed(some_seconds), metavar="SECONDS", default=_SECONDS, help=what)
    add_cluster_flags(parser)
