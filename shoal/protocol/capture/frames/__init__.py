"""Raw captures: whole frames as packets of a pcapng file.

    frame -> exchanges (whose answer is it?) -> frame_filter -> redaction (secrets cut out) -> pcapng

`pcapng_reader` reads such a file back. Nothing in a file is trusted.
"""
