"""kafka-python as an oracle and as a client. Importing it warns of a deprecated call of its own, and our warnings are
errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as codec
    import kafka.record.memory_records as memory_records
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.partitioner.default import murmur2
    from kafka.protocol.consumer import FetchRequest, FetchResponse
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

__all__ = [
    "DefaultRecordBatchBuilder",
    "FetchRequest",
    "FetchResponse",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "LegacyRecordBatch",
    "LegacyRecordBatchBuilder",
    "TopicPartition",
    "codec",
    "memory_records",
    "murmur2",
]
