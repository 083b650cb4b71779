"""Kafka as Java programs.

    jars (from Maven Central, `pom.xml`) -> jvm (start a program) -> tools (command line tools from the jars)

`class_archive` makes short-lived programs start faster.
"""
