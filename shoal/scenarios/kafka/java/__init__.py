"""Kafka as Java programs.

    jars (from Maven Central, `pom.xml`) -> jvm (how a program is started) -> tools (command line tools out of the jars)

`old_clients` are the clients from before Kafka 0.11 (`old-clients.xml`).
"""
