"""Captured rows as Spark data sources.

    reading -+-> source (`shoal`: index files; stream: as they grow)
             +-> raw_source (`shoal-raw`: raw captures)
             +-> parquet_parts (compacted captures)

`schema` is the schema of all of them, `options` lists what a reader can set.
"""
