"""Side-by-side benchmarks on this machine: nothing, HAProxy and Shoal before the same real broker."""
