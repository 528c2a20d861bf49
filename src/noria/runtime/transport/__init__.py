"""Bytes between processes and hosts: wire format, ownership of a shard, signs of life, tunnels.

Packets come in; bytes go out, and back.
Nothing here knows what a packet means.
"""
