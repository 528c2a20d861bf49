"""Bytes between processes and hosts: wire format, ownership of a shard, signs of life, tunnels.

`wire.encode` and `wire.FrameDecoder` convert packets. No module here depends on what a packet means.
"""
