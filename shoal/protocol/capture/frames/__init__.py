"""Raw captures: whole frames as packets of a pcapng file.

    frame -> exchanges (match answers to requests) -> frame_filter -> redaction (removes secrets) -> pcapng

`pcapng_reader` reads such a file back. Nothing in a file is trusted.
"""
