"""kafka-python as an oracle. Importing it warns of a deprecated call of its own, and our warnings are errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as codec
    import kafka.record.memory_records as memory_records
    from kafka.partitioner.default import murmur2
    from kafka.record.default_records import DefaultRecordBatchBuilder

__all__ = ["DefaultRecordBatchBuilder", "codec", "memory_records", "murmur2"]
