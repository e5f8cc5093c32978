"""The Codex app-server's messages, as far as we use them; modelled by hand.

Taken from what `codex app-server generate-json-schema --experimental` of 0.163.0 prints, and checked against the
installed binary by the tests. `requests` is client to server, `notifications` and `server_requests` are server to
client; `items` holds the threads, turns and items of both. Nothing here waits or decides.
"""

SCHEMA_VERSION = "0.163.0"
"""The binary whose schema these structs were written from."""

__all__ = ["SCHEMA_VERSION"]
