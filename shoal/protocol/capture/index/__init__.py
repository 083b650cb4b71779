"""The index of what passed (`*.kxb`): what is in a row, how rows become blocks, how traffic becomes rows.

    bytes of a connection -> tap -> stream (frames) -> requests | answers -> record_sets -> rows -> blocks

    file   := block block ...          the first one says who wrote it
    block  := magic, type, length, CRC-32C, payload
    rows   := fixed-width rows (`columns`), one per record batch in each direction, and one per request without records
    names  := the strings that rows mention by number

`pending` keeps a request until its answer. `again` and `ahead` are faster readers of Produce requests, `sizes` reads
plain sizes in place. A file is only appended to. Its end may be torn and its middle damaged: a reader loses the
damaged block, and knows it.
"""
