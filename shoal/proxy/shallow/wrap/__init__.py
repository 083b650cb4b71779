"""The wrapping listener: Fetch answers of a mirror, with runs of batches in envelopes.

    Fetch request -> mirror_fetch -> broker -> answer -> hold -> review (interlock) -> wrap, splice, send -> commit

`path` has the requests, and `mirror_answers` the answers, stage by stage. `mirror_fetch` has the fetch offset of each
partition, `hold` delays an answer while the interlock requires it, and `oversized` streams an answer that is too large
to hold; both use `source_knowledge`. `followed` says which partitions are stopped at a gap. `copy_kinds` knows the
topics whose copies have the offsets of their source, and `same_offsets` answers for these.
"""
