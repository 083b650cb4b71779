"""What `--help` says around the options. Lines fit 80 columns."""

__all__ = ["CHECK_END", "MIRROR_END", "RUN_END", "TOP", "TOP_END"]

TOP = """\
Shoal is a proxy between a stock MirrorMaker 2 and stock brokers. It mirrors
whole compressed batches, so the mirror neither decompresses nor compresses
records.

  source brokers <-- fetch --- [ Shoal: wrap ] <--- consumer \\
                                     |                        MirrorMaker 2
  target brokers <-- produce - [ Shoal: unwrap ] <- producer /

With a configuration file (shoal run) it serves any clients: it joins small
requests of many producers, translates for clients of Kafka 0.8 to 0.10, and
adds TLS and logins on either side.
"""
TOP_END = """\
first steps:
  1. start Shoal; it prints the MirrorMaker settings:
     shoal mirror --source a1:9092 --target b1:9092
  2. see what else must change:
     shoal check mm2.properties
  3. start MirrorMaker 2 and watch Shoal's traffic summaries

"""
MIRROR_END = """\
what happens:
  Shoal listens on one port for the source cluster and one for the target
  cluster, plus one port per broker (--source-ports, --target-ports). It prints
  the MirrorMaker settings, then traffic summaries, until SIGTERM or Ctrl-C.
  SIGHUP reads certificates and secrets again.
  It wraps nothing until records sent to the mirror come back through the target
  listener. If wired wrongly, the mirror mirrors as before, and Shoal logs why.

examples:
  shoal mirror --source kafka-a:9092 --target kafka-b:9092
  shoal mirror --source a1:9092,a2:9092 --target b1:9092 \\
               --source-listen 0.0.0.0:19092 --target-listen 0.0.0.0:29092 \\
               --advertise shoal.example
  # a topic read by a transform
  shoal mirror --source a1:9092 --target b1:9092 --deep-topics '^audit$'
  # only the settings, for Strimzi
  shoal mirror --source a1:9092 --target b1:9092 --print-only --form strimzi

next: shoal check mm2.properties
"""
RUN_END = """\
first: shoal check -c shoal.toml    # the file, its certificates, keys and users

signals: SIGTERM and Ctrl-C answer what is in progress, then end; a second one
ends at once. SIGHUP reads the configuration, certificates, keys, users and
secrets again (docs/configuration.md: what needs a restart).

a small shoal.toml (every key: docs/configuration.md):
  state-dir = "/var/lib/shoal"
  [[cluster]]
  name = "source"
  bootstrap = "a1:9092"
  [[cluster]]
  name = "target"
  bootstrap = "b1:9092"
  [[listener]]
  name = "source"
  cluster = "source"
  listen = "127.0.0.1:19092"
  ports = "19093-19192"
  mode = "wrap"
  pair = "target"
  [[listener]]
  name = "target"
  cluster = "target"
  listen = "127.0.0.1:29092"
  ports = "29093-29192"
  mode = "unwrap"

next: shoal check -c shoal.toml mm2.properties
"""
CHECK_END = """\
reads: mm2.properties of a dedicated MirrorMaker 2, or the JSON of a
MirrorSourceConnector. Shoal's addresses are taken from -c, or from
--source-listen and --target-listen, as given to shoal mirror. With -c alone it
checks shoal.toml itself: the keys, and the files of certificates, keys and
users that they name.

examples:
  shoal check mm2.properties
  shoal check mm2.properties --source-listen shoal.example:19092 \\
              --target-listen shoal.example:29092
  shoal check -c shoal.toml connector.json
  shoal check -c shoal.toml
  curl -s localhost:8083/connectors/mirror | shoal check -

exit codes: 0 nothing must change, 1 something must change,
            2 the file or the configuration cannot be read, or is wrong
"""
