"""Our structs against messages that were really sent, and what else they promise."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_providers.codex.schema import items, notifications, requests, server_requests
from tutti_side.jsonrpc.messages import Message

GOLDEN = Path(__file__).parents[2] / "golden" / "codex" / "messages"


# messages that were really sent


def golden(kind: str) -> Mapping[str, bytes]:
    """Return method (or kind of item) → the one recorded message of this kind and direction."""
    files = sorted(GOLDEN.glob(f"{kind}.*.json"))
    return {f.name.removeprefix(f"{kind}.").removesuffix(".json").replace(".", "/"): f.read_bytes() for f in files}


def lost(decoded: Any, wire: Any) -> list[str]:
    """Return the paths where a decoded struct says something else than the wire did."""
    if isinstance(decoded, msgspec.Raw):
        return []
    if isinstance(decoded, msgspec.Struct):
        fields = {f.encode_name: getattr(decoded, f.name) for f in msgspec.structs.fields(decoded)}
        return [f"{n}{p}" for n, v in fields.items() if n in wire for p in lost(v, wire[n])]
    if isinstance(decoded, tuple):
        return [f"[{i}]{p}" for i, (d, w) in enumerate(zip(decoded, wire, strict=True)) for p in lost(d, w)]
    return [] if decoded == wire else [f" {decoded!r} is not {wire!r}"]


@pytest.mark.parametrize("method", golden("server-notification"))
def test_a_recorded_notification_is_read_without_loss_or_is_known_to_be_none_of_ours(method: str) -> None:
    """Recorded from 0.163.0. Deltas are read by their head alone."""
    line = golden("server-notification")[method]
    params = notifications.decode_notification(method, line)
    ours = method in notifications.NOTIFICATIONS
    assert (params is not None) == ours
    if params is not None:
        assert lost(params, json.loads(line)["params"]) == []


@pytest.mark.parametrize("method", golden("server-request"))
def test_a_recorded_request_of_the_server_is_read_without_loss(method: str) -> None:
    """Recorded from 0.163.0."""
    line = golden("server-request")[method]
    assert lost(server_requests.decode_server_request(method, line), json.loads(line)["params"]) == []


@pytest.mark.parametrize("method", golden("server-result"))
def test_a_recorded_result_is_read_without_loss(method: str) -> None:
    """Recorded from 0.163.0."""
    by_method = {params.METHOD: result for params, result in requests.REQUESTS.items()}
    wire = json.loads(golden("server-result")[method])["result"]
    assert lost(msgspec.json.decode(json.dumps(wire), type=by_method[method]), wire) == []


@pytest.mark.parametrize("method", golden("client-request"))
def test_a_recorded_request_of_a_client_is_written_again_as_it_was(method: str) -> None:
    """Recorded from 0.163.0: what isn't set isn't sent, what must be null is."""
    by_method = {params.METHOD: params for params in requests.REQUESTS}
    wire = json.loads(golden("client-request")[method])["params"]
    params = msgspec.json.decode(json.dumps(wire), type=by_method[method])
    assert json.loads(msgspec.json.encode(params)) == wire


@pytest.mark.parametrize("method", golden("client-result"))
def test_a_recorded_answer_of_a_client_is_written_again_as_it_was(method: str) -> None:
    """Recorded from 0.163.0."""
    answer = server_requests.ANSWERS[server_requests.SERVER_REQUESTS[method]]
    wire = json.loads(golden("client-result")[method])["result"]
    assert json.loads(msgspec.json.encode(msgspec.json.decode(json.dumps(wire), type=answer))) == wire


@pytest.mark.parametrize("kind", golden("item"))
def test_a_recorded_item_is_read_by_its_own_struct_without_loss(kind: str) -> None:
    """Recorded from 0.163.0."""
    raw = golden("item")[kind]
    item = items.decode_item(raw)
    assert type(item) is items.ITEM_TYPES[kind]
    assert lost(item, json.loads(raw)) == []


def test_the_methods_of_which_no_message_was_recorded_are_these() -> None:
    """Our choice: the gap is written down, so that it closes and doesn't grow unseen."""
    modelled = {
        "server-notification": set(notifications.NOTIFICATIONS),
        "server-request": set(server_requests.SERVER_REQUESTS),
        "client-request": {params.METHOD for params in requests.REQUESTS},
        "server-result": {params.METHOD for params in requests.REQUESTS},
        "item": set(items.ITEM_TYPES),
    }
    assert {kind: names - set(golden(kind)) for kind, names in modelled.items()} == {
        "server-notification": {"deprecationNotice", "guardianWarning", "item/mcpToolCall/progress", "model/rerouted"},
        "server-request": {
            "item/permissions/requestApproval",
            "item/tool/call",
            "account/chatgptAuthTokens/refresh",
            "applyPatchApproval",
            "execCommandApproval",
        },
        "client-request": set(),
        "server-result": set(),
        "item": {"dynamicToolCall", "collabAgentToolCall", "subAgentActivity"},
    }


# what the structs promise


def test_the_head_reads_the_hot_fields_of_a_delta_and_of_a_started_thread() -> None:
    """STACK: one pass over every line."""
    decoder = msgspec.json.Decoder(Message[notifications.Head])
    delta = golden("server-notification")["item/agentMessage/delta"]
    head = decoder.decode(delta).params
    wire = json.loads(delta)["params"]
    assert head is not None
    assert (head.thread_id, head.turn_id, head.item_id, head.delta) == tuple(
        wire[k] for k in ("threadId", "turnId", "itemId", "delta")
    )
    started = golden("server-notification")["thread/started"]
    head = decoder.decode(started).params
    assert head is not None
    assert head.thread is not None
    assert head.thread.id == json.loads(started)["params"]["thread"]["id"]


def test_what_is_not_set_is_not_sent() -> None:
    """T3: an absent field keeps or inherits; a null would say something else."""
    assert msgspec.to_builtins(requests.ForkParams(thread_id="t")) == {"threadId": "t"}
    side = requests.ForkParams(thread_id="t", ephemeral=True, exclude_turns=True, sandbox="read-only")
    assert msgspec.to_builtins(side) == {
        "threadId": "t",
        "ephemeral": True,
        "excludeTurns": True,
        "sandbox": "read-only",
    }


def test_a_service_tier_of_null_is_sent_and_is_something_else_than_none_given() -> None:
    """The binary's type is an option in an option: absent keeps the tier, null takes it away."""
    turn = requests.TurnStartParams(thread_id="t", input=(requests.TextInput(text="x"),), service_tier=None)
    wire = {"threadId": "t", "input": [{"type": "text", "text": "x"}], "serviceTier": None}
    assert json.loads(msgspec.json.encode(turn)) == wire


def test_the_nulls_of_collaboration_settings_are_sent() -> None:
    """PROTOCOL: null instructions mean the built-in text of the mode."""
    mode = requests.CollaborationMode(mode="default", settings=requests.CollaborationSettings(model="m"))
    settings = {"model": "m", "reasoning_effort": None, "developer_instructions": None}
    assert msgspec.to_builtins(mode) == {"mode": "default", "settings": settings}


def test_a_sandbox_policy_keeps_what_we_do_not_know_of_it() -> None:
    """R19: a restriction that only a newer server knows must not be lost between the source and its Side."""
    settings = {
        "cwd": "/c",
        "model": "m",
        "modelProvider": "p",
        "approvalPolicy": {"granular": {"rules": True, "newer": 1}},
        "approvalsReviewer": "user",
        "sandboxPolicy": {"type": "readOnly", "networkAccess": False, "newerRestriction": ["x"]},
    }
    read = msgspec.convert(settings, notifications.ThreadSettings)
    turn = requests.TurnStartParams(
        thread_id="t", input=(), sandbox_policy=read.sandbox_policy, approval_policy=read.approval_policy
    )
    wire = msgspec.to_builtins(turn)
    assert wire["sandboxPolicy"] == settings["sandboxPolicy"]
    assert wire["approvalPolicy"] == settings["approvalPolicy"]


def test_a_thread_without_lineage_fields_reads_as_no_ephemeral_fork_of_anything() -> None:
    """T20: 0.100 sends neither field; the lineage check must fail on that, not pass."""
    thread = msgspec.convert({"id": "t", "path": "/p"}, items.Thread)
    assert (thread.ephemeral, thread.forked_from_id, thread.path) == (False, None, "/p")


@pytest.mark.parametrize(
    ("raw", "kind", "identity"),
    [
        (b'{"type":"sleep","id":"i","durationMs":5}', "sleep", "i"),
        (b'{"type":"brandNew","id":"i","agentMessage":{"text":"x"}}', "brandNew", "i"),
        (b'{"type":"agentMessage","id":"i","text":5}', "agentMessage", "i"),
        (b'{"type":"agentMessage","id":"i"}', "agentMessage", "i"),
        (b'{"type":7,"id":8}', "", None),
        (b"{}", "", None),
        (b"[]", "", None),
        (b"", "", None),
        (b"null", "", None),
        (b'{"type":"agentMessage",', "", None),
        (b"[" * 100_000, "", None),
        (b'{"type":"mcpToolCall","id":"i","arguments":' + b"[" * 100_000, "", None),
    ],
)
def test_an_item_that_we_cannot_place_is_an_unknown_item(raw: bytes, kind: str, identity: str | None) -> None:
    """STACK: a tagged union would reject it; a newer server's item is no reason to lose a turn."""
    assert items.decode_item(raw) == items.UnknownItem(type=kind, id=identity)


NAMES = st.sampled_from(["type", "id", "text", "content", "changes"]) | st.text()
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_no_item_raises(value: Any) -> None:
    """R9: `decode_item` is total."""
    raw = json.dumps(value).encode("utf-8", "surrogatepass")
    assert isinstance(items.decode_item(raw), msgspec.Struct)
    for kind in items.ITEM_TYPES:
        raw = json.dumps({"type": kind, "id": "i", "text": value, "content": value}).encode("utf-8", "surrogatepass")
        assert isinstance(items.decode_item(raw), msgspec.Struct)


def test_a_wrong_shape_of_a_known_method_is_an_error_and_an_unknown_method_is_none() -> None:
    """Our choice: the router counts the one and ignores the other; a malformed request must be refused."""
    assert notifications.decode_notification("nothing/of/ours", b"not even json") is None
    assert server_requests.decode_server_request("nothing/of/ours", b"") is None
    with pytest.raises(msgspec.ValidationError):
        notifications.decode_notification("turn/started", b'{"params":{"threadId":5}}')
    with pytest.raises(msgspec.ValidationError):
        server_requests.decode_server_request("item/tool/call", b'{"params":null}')
