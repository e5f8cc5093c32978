"""The replication contract."""
