"""The connections of a replay.

    leaders (of partitions) -> connections (one queue per connection) -> wire (frames in order) -> statistics

Open loop: a request is sent when it is due, whether or not earlier ones are answered.
"""
