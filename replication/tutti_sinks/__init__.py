"""SQL sinks."""
