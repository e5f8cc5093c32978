"""What is kept of a session: in memory and in a file, by the same tests; and what can happen to a file."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tutti_side.contract import CanonicalRef, SessionId, SourceMetadata, SourceMetadataPort, WorkspaceId
from tutti_side.host import JsonFileMetadata, MetadataFileError
from tutti_side.runtime import MemoryMetadata

W = WorkspaceId("w")
ONE, TWO = CanonicalRef(W, SessionId("one")), CanonicalRef(W, SessionId("two"))


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_beside(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()]


def metadata(name: str, *, context: str | None = None) -> SourceMetadata:
    return SourceMetadata(
        provider="held", provider_session_id=name, cwd="/", runtime={"home": "/ü"}, host_context=context
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "sessions.json"


@pytest.fixture(params=["memory", "json"])
def make(request: pytest.FixtureRequest, path: Path) -> Callable[[], SourceMetadataPort]:
    """Make the same store again, as a program that starts again does."""
    if request.param == "json":
        return lambda: JsonFileMetadata(path)
    kept = MemoryMetadata()
    return lambda: kept


async def test_what_is_written_is_read_and_the_latest_wins(make: Callable[[], SourceMetadataPort]) -> None:
    """Required."""
    store = make()
    assert await store.read(ONE) is None
    await store.write(ONE, metadata("p1", context="first"))
    await store.write(ONE, metadata("p1", context="latest ☃"))
    assert await store.read(ONE) == metadata("p1", context="latest ☃")
    assert await make().read(ONE) == metadata("p1", context="latest ☃")


async def test_sessions_are_kept_apart(make: Callable[[], SourceMetadataPort]) -> None:
    """Required: by workspace and id."""
    store = make()
    elsewhere = CanonicalRef(WorkspaceId("x"), SessionId("one"))
    for ref, name in ((ONE, "p1"), (TWO, "p2"), (elsewhere, "p3")):
        await store.write(ref, metadata(name))
    again = make()
    assert [await again.read(ref) for ref in (ONE, TWO, elsewhere)] == [metadata(f"p{n}") for n in (1, 2, 3)]


async def test_two_writers_at_once_lose_nothing(make: Callable[[], SourceMetadataPort]) -> None:
    """Required: two sessions of one host start at once."""
    store = make()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(store.write, CanonicalRef(W, SessionId(f"s{number}")), metadata(f"p{number}"))
    again = make()
    for number in range(20):
        assert await again.read(CanonicalRef(W, SessionId(f"s{number}"))) == metadata(f"p{number}")


async def test_a_cancelled_write_keeps_the_old_or_the_new_one_whole(make: Callable[[], SourceMetadataPort]) -> None:
    """R14."""
    store = make()
    await store.write(ONE, metadata("old"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.write(ONE, metadata("new"))
    assert await store.read(ONE) in (metadata("old"), metadata("new"))
    assert await make().read(ONE) == await store.read(ONE)


DAMAGE = {
    "cut short": b'{"version":1,"sess',
    "empty": b"",
    "no object": b"[]",
    "another program's": b'{"name":"package","dependencies":{}}',
    "invalid UTF-8": b'{"version":1,"sessions":[{"workspace":"\xff"}]}',
    "a session without its metadata": b'{"version":1,"sessions":[{"workspace":"w","session":"one"}]}',
    "deeply nested": b"[" * 100_000,
    "a later version": b'{"version":2,"sessions":[]}',
}


@pytest.mark.parametrize("case", DAMAGE)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(path: Path, case: str) -> None:
    """Required: nothing is guessed, nothing is overwritten, and its content is in no message."""
    put(path, DAMAGE[case])
    store = JsonFileMetadata(path)
    for _ in range(2):
        with pytest.raises(MetadataFileError) as caught:
            await store.read(ONE)
        with pytest.raises(MetadataFileError):
            await store.write(ONE, metadata("p"))
    assert caught.value.path == path
    assert "package" not in str(caught.value)
    assert content(path) == DAMAGE[case]
    assert names_beside(path) == [path.name]


async def test_a_path_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """Required."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "sessions.json", tmp_path):
        store = JsonFileMetadata(path)
        with pytest.raises(MetadataFileError, match="can't be"):
            await store.write(ONE, metadata("p"))
        with pytest.raises(MetadataFileError):
            await store.read(ONE)


@pytest.mark.parametrize("step", ["fsync", "replace"])
async def test_a_failed_write_keeps_what_was_kept_and_leaves_no_litter(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Required: a full disk."""
    store = JsonFileMetadata(path)
    await store.write(ONE, metadata("old"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(MetadataFileError, match="No space left"):
            await store.write(ONE, metadata("new"))
    assert await store.read(ONE) == metadata("old")
    assert await JsonFileMetadata(path).read(ONE) == metadata("old")
    assert names_beside(path) == [path.name]
    await store.write(ONE, metadata("new"))
    assert await JsonFileMetadata(path).read(ONE) == metadata("new")


class Crash(BaseException):
    """The process ends here."""


async def test_a_crash_between_write_and_rename_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: the new content is whole on disk before it gets the name."""
    store = JsonFileMetadata(path)
    await store.write(ONE, metadata("old"))
    before = content(path)
    seen: list[bytes] = []

    def crash(source: str, target: Path) -> None:
        seen.append(Path(source).read_bytes())
        raise Crash

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(Crash):
        await store.write(ONE, metadata("new"))
    assert content(path) == before
    assert b'"new"' in seen[0]
    assert await JsonFileMetadata(path).read(ONE) == metadata("old")


async def test_the_file_is_for_its_owner_only(path: Path) -> None:
    """Our choice: it holds the host's context for the agent."""
    await JsonFileMetadata(path).write(ONE, metadata("p", context="c"))
    assert mode(path) == 0o600


async def test_what_is_no_text_is_refused_and_nothing_is_lost(path: Path) -> None:
    """Our choice: a directory's name can be bytes that are no text, as no JSON file can hold them."""
    store = JsonFileMetadata(path)
    await store.write(ONE, metadata("old"))
    bad = SourceMetadata(provider="held", provider_session_id="p", cwd="/\udcff")
    with pytest.raises(MetadataFileError, match="not text"):
        await store.write(TWO, bad)
    assert await store.read(ONE) == metadata("old")
    await store.write(TWO, metadata("p2"))
    assert await JsonFileMetadata(path).read(TWO) == metadata("p2")


def test_a_repr_shows_no_context() -> None:
    """R2."""
    assert "secret" not in repr(metadata("p", context="secret"))


async def test_what_is_forgotten_is_kept_nowhere_and_the_others_are(make: Callable[[], SourceMetadataPort]) -> None:
    """Architecture, Ends: a session that its user deleted is not found again, by a later host either."""
    store = make()
    await store.write(ONE, metadata("p1"))
    await store.write(TWO, metadata("p2"))
    await store.forget(ONE)
    await store.forget(ONE)
    again = make()
    assert await again.read(ONE) is None
    assert await again.read(TWO) == metadata("p2")
