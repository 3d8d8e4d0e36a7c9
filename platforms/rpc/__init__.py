"""Devices of other machines, through TVM's RPC servers: ``rpc://host:port/key``.  No platform, but a way to some."""
