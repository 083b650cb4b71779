"""Primitive types, errors and codecs. Nothing here knows a message or an API key.

types          integers, varints, strings, tagged fields: read and write pairs
errors         which side is at fault; error_codes are Kafka's
framing        is this the size of a Kafka frame?
proxy_protocol the header in which a load balancer sends the client's address
splice         replace ranges of a frame without copying the rest
crc            CRC-32C, patched and combined without a second pass
compression    the four codecs with bounded output; plain_stream decompresses in steps
"""
