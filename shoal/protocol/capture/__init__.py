"""The always-on index of what passed (`*.kxb`, design section 6): what is in a row, how rows become blocks, how a file is read.

    file   := block block ...          the first one says who wrote it
    block  := magic, type, length, CRC-32C, payload
    rows   := fixed-width rows, one per record batch in each direction, and one per request without records
    names  := the strings that rows mention by number

A file is only ever appended to. Its end may be torn and its middle may be damaged: a reader loses the block that is hit, and knows it.
"""
