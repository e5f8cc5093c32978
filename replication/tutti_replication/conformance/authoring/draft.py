"""A small language for drafting cases: mutations in, steps of plain JSON out."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tutti_replication.acknowledgement import APPLIED, DUPLICATE, STALE
from tutti_replication.codec import encode_batch, to_wire
from tutti_replication.epoch import PROJECTION_EPOCH
from tutti_replication.keys import EntityKey
from tutti_replication.mutation import EntityDelete, Mutation, Upsert

__all__ = ["Json", "SinkDraft", "batch_json", "plain"]

Json = dict[str, Any]

_DUPLICATE_MARK: Final = "="
_SILENT: Final = "stale"


def plain(value: object) -> Json:
    """Return a struct as the JSON object that it is written as."""
    document: Json = json.loads(msgspec.json.encode(value))
    return document


def batch_json(mutations: Sequence[Mutation], epoch: int = PROJECTION_EPOCH) -> Json:
    """Return a batch as JSON, to be spoiled."""
    document: Json = json.loads(encode_batch(mutations, epoch=epoch))
    return document


class SinkDraft:
    """A sink case in the making; every method adds a step."""

    def __init__(self, name: str, about: str, source: str) -> None:
        self.name = name
        self.about = about
        self.source = source
        self.steps: list[Json] = []

    def json(self) -> Json:
        """Return the case as it is written."""
        return {"name": self.name, "about": self.about, "source": self.source, "steps": self.steps}

    def apply(
        self,
        about: str,
        *mutations: Mutation,
        answers: Sequence[str],
        writer: str = "a",
        permitted: Sequence[str] | None = None,
        document: Json | None = None,
        text: str = "",
    ) -> None:
        """Apply and be accepted.

        Args:
          about: why.
          mutations: what the answers name, in order.
          answers: for each mutation a cursor label ``c1``, ``c2``, …; ``=c1`` for a duplicate; or ``stale``.
          writer: "a" or "b".
          permitted: the only workspaces that the caller may write to.
          document: sent instead of the mutations' own batch.
          text: likewise, characters that are no tidy JSON.
        """
        acknowledgements: list[Json] = []
        for mutation, answer in zip(mutations, answers, strict=True):
            duplicate = answer.startswith(_DUPLICATE_MARK)
            acknowledgements.append(
                {
                    "mutationId": mutation.mutation_id,
                    "transactionId": mutation.transaction_id,
                    "disposition": DUPLICATE if duplicate else STALE if answer == _SILENT else APPLIED,
                    "cursor": 0 if answer == _SILENT else answer.removeprefix(_DUPLICATE_MARK),
                }
            )
        labels = [ack["cursor"] for ack in acknowledgements if ack["cursor"]]
        greatest = max(labels, key=_number) if labels else 0
        expect = {
            "kind": "answer",
            "result": {"acceptedCount": len(mutations), "cursor": greatest, "projectionEpoch": PROJECTION_EPOCH},
            "acknowledgements": acknowledgements,
        }
        self._send(about, mutations, expect, writer=writer, permitted=permitted, document=document, text=text)

    def reject(
        self,
        about: str,
        *mutations: Mutation,
        kind: str = "schema",
        names: Mutation | None,
        field: str = "",
        permitted: Sequence[str] | None = None,
        document: Json | None = None,
        text: str = "",
        data: bytes = b"",
    ) -> None:
        """Apply and be permanently rejected; the arguments are those of `apply`, ``names`` is the offender."""
        expect = {
            "kind": "rejection",
            "rejection": kind,
            "mutationId": names.mutation_id if names else "",
            "transactionId": names.transaction_id if names else "",
        }
        if field:
            expect["field"] = field
        self._send(about, mutations, expect, permitted=permitted, document=document, text=text, data=data)

    def mismatch(self, about: str, *, actual: int, document: Json | None = None, text: str = "") -> None:
        """Apply and be refused for the epoch."""
        expect = {"kind": "epochMismatch", "expected": PROJECTION_EPOCH, "actual": actual}
        self._send(about, (), expect, document=document, text=text)

    def restart(self) -> None:
        """Close every handle."""
        self.steps.append({"do": "restart"})

    def stored(self, mutation: Upsert, verbatim: dict[str, str] | None = None, **changes: object) -> None:
        """Expect the mutation's own snapshot and scope, but for these fields of the snapshot."""
        snapshot = msgspec.structs.replace(mutation.snapshot, **changes)
        expect: Json = {"kind": "stored", "snapshot": plain(snapshot), "scope": plain(mutation.scope)}
        if verbatim:
            expect["verbatim"] = verbatim
        self.steps.append({"do": "lookup", "row": _row(mutation, mutation.key), "expect": expect})

    def absent(self, mutation: Mutation, key: EntityKey | None = None) -> None:
        """Expect nothing where this mutation's entity would be, or one with another key beside it."""
        self.steps.append({"do": "lookup", "row": _row(mutation, key or mutation.key), "expect": {"kind": "absent"}})

    def _send(
        self,
        about: str,
        mutations: Sequence[Mutation],
        expect: Json,
        *,
        writer: str = "a",
        permitted: Sequence[str] | None = None,
        document: Json | None = None,
        text: str = "",
        data: bytes = b"",
    ) -> None:
        step: Json = {"do": "apply", "about": about}
        if writer != "a":
            step["writer"] = writer
        if permitted is not None:
            step["permittedWorkspaces"] = list(permitted)
        if data:
            step["input"] = {"base64": base64.b64encode(data).decode()}
        elif text:
            step["input"] = {"text": text}
        else:
            step["input"] = {"batch": batch_json(mutations) if document is None else document}
        step["expect"] = expect
        self.steps.append(step)


def _number(label: str) -> int:
    """Labels are ``c1``, ``c2``, … in the order in which their cursors are given."""
    return int(label.removeprefix("c"))


def _row(mutation: Mutation, key: EntityKey) -> Json:
    wire = to_wire(EntityDelete("", "", mutation.source_device_id, mutation.workspace_id, key))
    return {
        "workspaceId": mutation.workspace_id,
        "sourceDeviceId": mutation.source_device_id,
        "entityType": key.entity_type,
        "key": plain(wire.key),
    }
