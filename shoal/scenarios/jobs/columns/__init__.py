"""Rows as columns, in numpy and pyarrow: `pieces` of them, their `groups`, and the `bins` of histograms."""
