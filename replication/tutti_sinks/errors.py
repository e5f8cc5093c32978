"""What can go wrong with a sink apart from what the contract itself refuses.

Messages name tables, settings and error codes; never a password, a parameter or any text of a client.
"""

__all__ = [
    "MissingDriverError",
    "SinkEpochError",
    "SinkError",
    "SinkInternalError",
    "SinkNotEmptyError",
    "SinkSetupError",
    "SinkUnavailableError",
    "SinkUrlError",
    "SinkVersionError",
]


class SinkError(Exception):
    """Root of this package's errors."""


class SinkUnavailableError(SinkError):
    """The database is gone, too busy or not reachable; the outcome of the call is unknown.

    Sending the same bytes again is always right: what was committed comes back as a duplicate.
    """


class SinkInternalError(SinkError):
    """The database refused a statement of ours: a bug of this package or a damaged schema; please report it."""


class SinkUrlError(SinkError):
    """The database URL can't be read, or names a database that this package doesn't speak."""


class SinkEpochError(SinkError):
    """The database was created for another projection epoch; only an explicit, destructive reset changes that.

    Attributes:
      recorded: the epoch in the database.
      wanted: the epoch that was asked for.
    """

    def __init__(self, recorded: int, wanted: int, hint: str) -> None:
        super().__init__(f"this projection belongs to epoch {recorded}, not {wanted}: {hint}")
        self.recorded = recorded
        self.wanted = wanted


class SinkSetupError(SinkError):
    """The database server is set up so that legal batches would fail on it again and again."""


class SinkNotEmptyError(SinkError):
    """The projection was used before, and what was asked for would destroy it."""

    def __init__(self) -> None:
        super().__init__("this projection was used before, and a check would empty it: name a database of its own")


class SinkVersionError(SinkError):
    """The database was migrated by a newer release, whose tables this one doesn't know.

    Attributes:
      unknown: the migrations that ran and that this release doesn't have.
    """

    def __init__(self, unknown: tuple[str, ...]) -> None:
        super().__init__(f"a newer release migrated this database ({', '.join(unknown)}): upgrade this one")
        self.unknown = unknown


class MissingDriverError(SinkError, ImportError):
    """A database library is not installed.

    Attributes:
      extra: the extra of this distribution that brings it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'tutti-side[{extra}]'")
        self.extra = extra
