"""Ask a working agent a question without stopping its turn."""
