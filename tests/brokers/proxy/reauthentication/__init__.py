"""Clients that stay connected for longer than a SASL session, so they must log in again (KIP-368).

Each sends numbered records and reads them back, without a pause, until it is stopped: `clients` (librdkafka and
kafka-python, in a thread each) and `tests/support/kafka/LongLived.java` (all of Java's, in one process).
"""
