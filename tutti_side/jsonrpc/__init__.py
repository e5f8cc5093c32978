"""A JSON-RPC peer that knows nothing of Sides or Codex."""
