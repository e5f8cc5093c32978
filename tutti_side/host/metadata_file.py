"""Source metadata in a JSON file, until the canonical store keeps it.

One file holds all sessions of a host. Each write replaces it whole (a new file, synced, then renamed), so that a crash
leaves the old or the new one. The file belongs to one process at a time.
"""

import os
import tempfile
from pathlib import Path

import msgspec
import trio

from tutti_side.contract import CanonicalRef, SessionId, SourceMetadata, WorkspaceId
from tutti_side.errors import TuttiSideError

__all__ = ["JsonFileMetadata", "MetadataFileError"]


class _Row(msgspec.Struct, frozen=True):
    workspace: str
    session: str
    metadata: SourceMetadata


class _File(msgspec.Struct, frozen=True):
    version: int
    sessions: tuple[_Row, ...]


_VERSION = 1
_DECODE = msgspec.json.Decoder(_File).decode


class MetadataFileError(TuttiSideError):
    """The file can't be read or written as what it is.

    Attributes:
      path: which file.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"the metadata file {path} {problem}")
        self.path = path


class JsonFileMetadata:
    """Implements `tutti_side.contract.SourceMetadataPort` over one file.

    Disk access happens in a worker thread, one at a time, which is waited for: a cancel never leaves half a write.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = trio.Lock()
        self._kept: dict[CanonicalRef, SourceMetadata] | None = None

    async def read(self, ref: CanonicalRef) -> SourceMetadata | None:
        """Return what is kept of a session.

        Raises:
          MetadataFileError: the file is unreadable, or no file of ours.

        Cancellation: harmless.
        """
        async with self._lock:
            return (await self._load()).get(ref)

    async def write(self, ref: CanonicalRef, metadata: SourceMetadata) -> None:
        """Keep a session's metadata.

        Raises:
          MetadataFileError: the file can't be written; what was kept is still kept.

        Cancellation: the old or the new one is kept.
        """
        async with self._lock:
            await self._store({**await self._load(), ref: metadata})

    async def forget(self, ref: CanonicalRef) -> None:
        """Keep nothing of a session any more; otherwise as `write`."""
        async with self._lock:
            kept = dict(await self._load())
            if kept.pop(ref, None) is not None:
                await self._store(kept)

    async def _store(self, kept: dict[CanonicalRef, SourceMetadata]) -> None:
        rows = tuple(_Row(key.workspace, key.session, value) for key, value in kept.items())
        try:
            content = msgspec.json.encode(_File(_VERSION, rows))
        except UnicodeEncodeError as error:  # a path can hold bytes that are no text
            raise MetadataFileError(self._path, "can't be written: something in it is not text") from error
        await trio.to_thread.run_sync(self._replace, content)
        self._kept = kept

    async def _load(self) -> dict[CanonicalRef, SourceMetadata]:
        if self._kept is None:
            self._kept = await trio.to_thread.run_sync(self._read_file)
        return self._kept

    def _read_file(self) -> dict[CanonicalRef, SourceMetadata]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise MetadataFileError(self._path, f"can't be read: {error.strerror}") from error
        try:
            file = _DECODE(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MetadataFileError(self._path, "is not a metadata file of ours, or is damaged") from error
        if file.version != _VERSION:
            raise MetadataFileError(self._path, f"has version {file.version}; this program reads {_VERSION}")
        return {CanonicalRef(WorkspaceId(row.workspace), SessionId(row.session)): row.metadata for row in file.sessions}

    def _replace(self, content: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, self._path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            raise MetadataFileError(self._path, f"can't be written: {error.strerror}") from error
