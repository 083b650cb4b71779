"""The bottom of the protocol: bytes without messages.

    types          integers, varints, strings, tagged fields: read and write pairs
    errors         who is at fault; error_codes are Kafka's own
    framing        is this the size of a Kafka frame?
    splice         replace ranges of a frame without a copy of the rest
    crc            CRC-32C, patched and combined without a second pass
    compression    the four codecs with bounded output; plain_stream gives the output in steps
    sasl           PLAIN and SCRAM, for Shoal's own log-in

Nothing here knows a message or an API key.
"""
