"""The connections of a replay.

    leaders (of partitions) -> lanes (one queue per connection) -> wire (frames in order) -> played (what came of it)

Open loop: a request is sent when it is due, whether or not the ones before it are answered.
"""
