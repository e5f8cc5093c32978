"""Reading back what a sink stored."""

import msgspec
import pytest
from msgspec import Raw

from tutti_replication import admit_batch, encode_batch
from tutti_replication.conformance.samples import (
    interaction_upsert,
    message_upsert,
    session_upsert,
    target_upsert,
    turn_upsert,
)
from tutti_replication.mutation import Upsert
from tutti_replication.stored import read_stored, read_stored_entity
from tutti_replication.structs import MessageSnapshot, SessionScope, SessionSnapshot


def test_a_stored_snapshot_is_read_back_as_it_was() -> None:
    """Wire page, Details: scopes are stored and read back; ids of up to 512 bytes, objects verbatim."""
    message = message_upsert("m", turn_id="\u00e9" * 256, payload=Raw(b'{ "b":1.0,"a":2 }'))
    session = session_upsert("n", user_id="u" * 512, scope={"initiator_user_id": "i" * 200})
    admitted = admit_batch(encode_batch([message, session]))
    assert admitted == (message, session)
    again = read_stored(MessageSnapshot, msgspec.json.encode(message.snapshot))
    assert again == message.snapshot
    assert bytes(again.payload) == b'{ "b":1.0,"a":2 }'
    assert read_stored(SessionSnapshot, msgspec.json.encode(session.snapshot)) == session.snapshot
    assert read_stored(SessionScope, msgspec.json.encode(session.scope)) == session.scope


@pytest.mark.parametrize(
    "upsert",
    [target_upsert("m"), session_upsert("m"), turn_upsert("m"), interaction_upsert("m"), message_upsert("m")],
    ids=lambda upsert: upsert.entity_type,
)
def test_each_kind_of_entity_is_read_back_with_its_scope(upsert: Upsert) -> None:
    """Wire page, Details: scopes are stored and read back."""
    snapshot, scope = msgspec.json.encode(upsert.snapshot), msgspec.json.encode(upsert.scope)
    assert read_stored_entity(upsert.entity_type, snapshot, scope) == (upsert.snapshot, upsert.scope)


def test_what_is_no_json_is_no_snapshot() -> None:
    """Our choice: a damaged row is an error, not an empty snapshot."""
    with pytest.raises(msgspec.DecodeError):
        read_stored(MessageSnapshot, b'{"id":')
