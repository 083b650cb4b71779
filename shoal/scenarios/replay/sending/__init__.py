"""The connections of a replay.

    leaders (of partitions) -> lanes (one queue per connection) -> wire (frames in order) -> played (results)

Open loop: a request is sent when it is due, whether or not earlier ones are answered.
"""
