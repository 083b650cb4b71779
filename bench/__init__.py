"""Side-by-side benchmarks on this machine: a direct connection, HAProxy and Shoal with the same real broker."""
