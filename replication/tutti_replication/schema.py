"""The JSON Schema of the contract, for people and for other languages; ``schema.json`` beside this file is its output.

It describes what a conforming peer *writes*. A reader is more lenient (null or absent for a zero value, unknown keys),
and stricter in what no schema says well: the rules of `rejection.Rule`.

``python -m tutti_replication.schema`` writes the file.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from ._fields import FIELDS
from .acknowledgement import ApplyResponse
from .epoch import EpochMismatchBody
from .rejection import PermanentRejectionBody
from .structs import ID_BYTES_MAX, SCHEMA_VERSION, ChangeBatch, WireMutation

__all__ = ["contract_schema", "schema_text"]

_ROOTS: Final = (ChangeBatch, ApplyResponse, EpochMismatchBody, PermanentRejectionBody)


def contract_schema() -> dict[str, Any]:
    """Return the schema: a batch at its root; answers, and everything else, under ``$defs``."""
    (batch, *_), components = msgspec.json.schema_components(_ROOTS, ref_template="#/$defs/{name}")
    for struct, fields in FIELDS.items():
        properties = components[struct.__name__]["properties"]
        for field in fields:
            if field.kind == "object":
                kind: str | list[str] = "object" if field.required else ["object", "null"]
                properties[field.wire_name] = {"type": kind}
            elif field.kind == "id":
                _lengthen(properties[field.wire_name])
        components[struct.__name__]["required"] = [
            field.encode_name for field in msgspec.structs.fields(struct) if field.default is msgspec.NODEFAULT
        ]
    for struct_with_version in (ChangeBatch, WireMutation):
        components[struct_with_version.__name__]["properties"]["schemaVersion"] = {"const": SCHEMA_VERSION}
    for component in components.values():
        _drop_defaults(component)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Activity replication batch",
        "$comment": "What a conforming peer writes. The lengths of ids count UTF-8 bytes.",
        **batch,
        "$defs": dict(sorted(components.items())),
    }


def schema_text() -> str:
    """Return the schema as it stands in ``schema.json``."""
    return json.dumps(contract_schema(), indent=2) + "\n"


def _lengthen(schema: dict[str, Any]) -> None:
    """The C decoder's own limit is in characters and four times lower, so that it can count; see `structs`."""
    for choice in schema.get("anyOf", [schema]):
        if "maxLength" in choice:
            choice["maxLength"] = ID_BYTES_MAX


def _drop_defaults(component: dict[str, Any]) -> None:
    """A default tells a writer nothing: what may be left out is what isn't required."""
    for schema in component.get("properties", {}).values():
        schema.pop("default", None)


if __name__ == "__main__":
    path = Path(__file__).with_name("schema.json")
    path.write_text(schema_text(), encoding="utf-8")
    sys.stdout.write(f"{path.name} written\n")
