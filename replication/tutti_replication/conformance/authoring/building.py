"""Drafts: canonical state, and the mutations that it must become."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw

from tutti_replication.canonical import (
    INTERACTION_SUPERSEDED,
    ROOT_PROVIDER_TURN_COMPLETED,
    SESSION_CHILD,
    VISIBILITY_PUBLIC,
)
from tutti_replication.conformance.samples import (
    interaction_upsert,
    message_upsert,
    session_upsert,
    settled,
    target_upsert,
    turn_upsert,
)
from tutti_replication.mutation import Upsert

from .draft import Json, plain

__all__ = ["drafts"]

_OWES = "wire page, What the source side owes"


def drafts() -> Iterator[Json]:
    """Yield the cases."""
    yield _case(
        "every_snapshot_keeps_its_wire_shape",
        "Each canonical entity becomes one upsert with its key, snapshot and scope; what is unset is written as such.",
        "activity replication specification; wire page, Snapshots",
        [target_upsert(""), session_upsert(""), turn_upsert(""), interaction_upsert(""), message_upsert("")],
    )
    yield _case(
        "every_field_that_can_be_set_is_written",
        "Nothing that canonical state knows is lost on the way.",
        "wire page, Snapshots",
        _full(),
    )
    yield _case(
        "objects_are_copied_verbatim",
        "Key order, repeated keys and number spelling of an object are canonical state's business.",
        'wire page, "object"',
        [message_upsert("")],
        verbatim={"payload": '{ "z":1, "a":[1.0,1e3], "z":{"y":null,"b":12345678901234567890123} }'},
    )
    roots_and_children: list[Upsert] = [
        message_upsert("", session_id="session-2"),
        interaction_upsert("", session_id="session-2", turn_id="turn-2"),
        turn_upsert("", session_id="session-2", turn_id="turn-2", identity_anchor_turn_id="turn-1"),
        turn_upsert("", session_id="session-2", turn_id="turn-1"),
        _child("session-2"),
        session_upsert(""),
        target_upsert(""),
    ]
    yield _case(
        "dependency_order",
        "Targets, sessions (roots before children), turns (anchors before anchored), interactions, messages.",
        _OWES,
        roots_and_children,
    )
    yield _case(
        "several_workspaces_and_devices",
        "The same ids in two workspaces, or on two devices, are different entities.",
        "wire page, What a sink decides, 2",
        [
            target_upsert(""),
            target_upsert("", device="device-2", name="Second"),
            session_upsert(""),
            session_upsert("", workspace_id="workspace-2", title="Elsewhere"),
        ],
    )


def _case(
    name: str, about: str, source: str, upserts: Sequence[Upsert], *, verbatim: dict[str, str] | None = None
) -> Json:
    seed: list[Json] = []
    mutations: list[Json] = []
    for upsert in upserts:
        place: Json = {
            "workspaceId": upsert.workspace_id,
            "sourceDeviceId": upsert.source_device_id,
            "entityType": upsert.entity_type,
        }
        content: Json = {"snapshot": plain(upsert.snapshot), "scope": plain(upsert.scope)}
        if verbatim:
            content["verbatim"] = verbatim
            content["snapshot"] |= {name: json.loads(text) for name, text in verbatim.items()}
        seed.append(place | content)
        mutations.append(place | {"key": plain(upsert.key)} | content)
    return {"name": name, "about": about, "source": source, "seed": seed, "mutations": mutations}


def _child(session_id: str) -> Upsert:
    return session_upsert(
        "",
        session_id=session_id,
        kind=SESSION_CHILD,
        root_agent_session_id="session-1",
        root_turn_id="turn-1",
        parent_agent_session_id="session-1",
        parent_turn_id="turn-1",
        parent_tool_call_id="call-1",
    )


def _full() -> list[Upsert]:
    scope: dict[str, Any] = {"shared_agent_binding_id": "binding-1", "visibility": VISIBILITY_PUBLIC}
    times: dict[str, Any] = {"started_at_unix_ms": 3, "created_at_unix_ms": 2, "updated_at_unix_ms": 2**53 + 1}
    return [
        target_upsert(
            "",
            icon_url="https://example.invalid/i.svg",
            mask_icon_url="https://example.invalid/m.svg",
            hero_image_url="https://example.invalid/h.png",
            sort_order=-7,
            scope={"description": "Build server"},
        ),
        session_upsert(
            "",
            scope=scope,
            agent_target_id="target-1",
            model="gpt-5.5",
            settings=Raw(b'{"effort":"high"}'),
            internal_runtime_context=Raw(b'{"k":null}'),
            cwd="/home/user/projekt \u00fc",
            rail_project_path="/home/user",
            message_version=9,
            last_event_at_unix_ms=5,
            ended_at_unix_ms=6,
            pinned_at_unix_ms=7,
            deleted_at_unix_ms=8,
            active_turn_id="turn-1",
            **times,
        ),
        turn_upsert("", turn_id="turn-0"),
        turn_upsert(
            "",
            scope=scope,
            identity_anchor_turn_id="turn-0",
            error=Raw(b'{"code":"x"}'),
            file_changes=Raw(b'{"files":[]}'),
            completed_command=Raw(b'{"exit":0}'),
            backfilled=True,
            source_goal_operation_id="goal-1",
            source_goal_revision=3,
            source_goal_repair_epoch=-1,
            root_provider_turn_id="provider-turn-1",
            provider_turn_binding_json=Raw(b'{"thread":"t"}'),
            root_provider_turn_phase=ROOT_PROVIDER_TURN_COMPLETED,
            root_provider_turn_outcome=settled(0)["outcome"],
            root_provider_turn_error=Raw(b'{"code":"y"}'),
            root_provider_turn_completed_command=Raw(b'{"exit":1}'),
            root_provider_turn_updated_at_unix_ms=9,
            **settled(10),
        ),
        interaction_upsert(
            "", scope=scope, status=INTERACTION_SUPERSEDED, output=Raw(b'{"a":1}'), metadata=Raw(b'{"b":2}')
        ),
        message_upsert(
            "",
            scope=scope,
            id=2**63 - 1,
            version=4,
            semantics=Raw(b'{"role":"x"}'),
            completed_at_unix_ms=5,
            deleted_at_unix_ms=6,
            **times,
        ),
    ]
