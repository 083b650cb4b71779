"""Edits of responses that every listener makes.

    held response     -> addresses: brokers' hosts and ports become those of the listener
    streamed response -> skim, skim_share: hide addresses in transit; watch: also notes the offsets that each partition
                         got

A streamed response is too large to hold. Its length must not change.
"""
