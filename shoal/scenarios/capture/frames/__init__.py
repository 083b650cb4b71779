"""Raw captures (`*.pcapng`) for people and for the analyses.

    files (frames in the order of time) -> index: the same rows as those of the index
                                        -> to_pcap: one file, filtered, without secrets

`index` feeds the frames to the same tap as the proxy's index. `to_pcap` needs neither numpy nor pyarrow.
"""
