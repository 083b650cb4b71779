"""What every job prints and writes.

noise    Spark's own log goes to a file
watch    progress on a terminal
tables   results as Parquet and as rows of a page
finish   the summary, the files and the page, at the end of a job
"""
