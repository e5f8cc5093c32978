"""The versioned JSON contract that takes canonical activity to a cloud projection.

Owns: batch, mutation, keys, scopes and snapshots (`structs`, `keys`), the canonical vocabulary (`canonical`), JSON
(`codec`), every rule (`validation`), answers (`acknowledgement`, `rejection`, `epoch`) and the two ports (`ports`).
Does not own: queries, room authorisation, transport, WebSockets, anything a GUI derives.

Loads msgspec and the standard library only. `tutti_replication.conformance` is not imported from here.
"""
