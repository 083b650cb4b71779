"""The command line of `shoal probe`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.protocol.wire.sasl import MECHANISMS, Credentials
from shoal.proxy.config.parse import check_topic, parse_addresses
from shoal.proxy.errors import OperatorError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

__all__ = ["PROBE_END", "PROBE_USAGE", "PROBE_WHAT", "add_login_options", "add_probe_options", "credentials"]

PROBE_WHAT = "test whether brokers accept several batches per partition in a produce request"
PROBE_USAGE = "HOST:PORT[,..] [options]"
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
  shoal probe b1:9092 --sasl-mechanism SCRAM-SHA-512 --sasl-username mirror \\
              --sasl-password-file mirror.password
  # an existing topic with a partition on every broker
  shoal probe b1:9092 --topic shoal-probe

exit codes: 0 all brokers proven, 1 a broker refuses, 4 a broker is unsafe,
            5 a broker could not be tried, 2 wrong arguments or no broker
            reachable, 3 error in Shoal itself
"""

_SECONDS = 30.0


def add_probe_options(
    parser: argparse.ArgumentParser, typed: Callable[[Callable[[str], Any]], Any], seconds: Any
) -> None:
    """`typed` makes a `type=` function from a parser of values; `seconds` is a parser of values."""
    parser.add_argument("bootstrap", type=typed(parse_addresses), metavar="HOST:PORT[,..]", help="bootstrap brokers")
    what = "existing topic to use instead of a scratch topic"
    parser.add_argument("--topic", type=typed(check_topic), metavar="NAME", help=what)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    what = f"timeout per broker, in seconds (default: {_SECONDS:g})"
    parser.add_argument("--seconds", type=typed(seconds), metavar="SECONDS", default=_SECONDS, help=what)
    add_login_options(parser)


def add_login_options(parser: argparse.ArgumentParser) -> None:
    """The options that `credentials` reads."""
    group = parser.add_argument_group("authentication (no TLS yet: credentials go over a plaintext connection)")
    group.add_argument("--sasl-mechanism", choices=MECHANISMS, help="default: none")
    group.add_argument("--sasl-username", metavar="NAME", help="user name")
    what = "file with the password in its first line, or - for standard input"
    group.add_argument("--sasl-password-file", metavar="FILE", help=what)


def credentials(flags: argparse.Namespace) -> Credentials | None:
    """Raises OperatorError."""
    given = [flags.sasl_mechanism, flags.sasl_username, flags.sasl_password_file]
    if not any(given):
        return None
    if not all(given):
        what = "needs all three: --sasl-mechanism, --sasl-username and --sasl-password-file"
        raise OperatorError.of("log-in", what)
    return Credentials(
        mechanism=flags.sasl_mechanism, username=flags.sasl_username, password=_password(flags.sasl_password_file)
    )


def _password(file: str) -> str:
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OperatorError.of("--sasl-password-file", f"{file} cannot be read: {reason}") from None
    return text.partition("\n")[0].rstrip("\r")
