"""Raw captures (`*.pcapng`), for Wireshark and for the analyses.

    files (frames in the order of time) -> index: rows as in the index
                                        -> to_pcap: one file, filtered, without secrets

`index` feeds the frames to the same tap that writes the proxy's index. `to_pcap` needs neither numpy nor pyarrow.
"""
