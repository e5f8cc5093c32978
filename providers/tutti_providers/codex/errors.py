"""What can go wrong with Codex: the binary, its start, its first answer, and each request after that."""

from tutti_side.errors import TuttiSideError

__all__ = [
    "BinaryNotFoundError",
    "BinaryUnusableError",
    "CodexError",
    "HandshakeError",
    "RequestRefusedError",
    "StartFailedError",
    "UnansweredError",
]

HOW_TO_GET_ONE = "`pip install 'tutti-side[codex]'` brings a proven one"
"""What every sentence about a missing or wrong binary ends with."""


class CodexError(TuttiSideError):
    """Every error of the Codex provider."""

    exit_code = 1
    """What a command line program ends with when this error ends it."""


class BinaryNotFoundError(CodexError):
    """There is no Codex binary in any of the four places where one is looked for.

    Attributes:
      searched: one sentence part a place, in the order of the search.
    """

    exit_code = 3

    def __init__(self, searched: tuple[str, ...]) -> None:
        super().__init__(f"no Codex binary found: {', '.join(searched)}; {HOW_TO_GET_ONE}")
        self.searched = searched


class BinaryUnusableError(CodexError):
    """A path was named outright, and it is no program that can be run. No other place is tried then.

    Attributes:
      path: what was named.
      origin: by whom: ``argument`` or ``CODEX_BIN``.
      problem: what is wrong with it.
    """

    exit_code = 3

    def __init__(self, path: str, origin: str, problem: str) -> None:
        named = "the given path" if origin == "argument" else origin
        super().__init__(f"{named} names {path} as the Codex binary, but it {problem}; {HOW_TO_GET_ONE}")
        self.path = path
        self.origin = origin
        self.problem = problem


class StartFailedError(CodexError):
    """The process ended, or its pipe broke, before it answered `initialize`.

    Attributes:
      status: its exit status (negative: the signal); None when unknown.
      startup_output: its last stderr lines, where alone Codex says why. They can hold text of the model: print them to
        the person who started it, never put them in a log or a message.
    """

    def __init__(self, status: int | None, startup_output: tuple[str, ...] = ()) -> None:
        known = "" if status is None else f" with exit status {status}"
        why = "its last lines on stderr say why" if any(startup_output) else "it said nothing on stderr"
        super().__init__(f"Codex ended{known} before it answered `initialize`; {why}")
        self.status = status
        self.startup_output = startup_output


class HandshakeError(CodexError):
    """Something runs, but it does not answer `initialize` as a Codex app-server does.

    Attributes:
      problem: what was wrong with the answer, or that none came.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"this is no Codex app-server that we can talk to: {problem}")
        self.problem = problem


class RequestRefusedError(CodexError):
    """The app-server answered a request with an error.

    Attributes:
      method: what was asked.
      code: the error's code; nearly always -32600, whatever is wrong.
      server_message: the server's words. They can quote what was sent, so they are not in this error's message.
    """

    def __init__(self, method: str, code: int, server_message: str) -> None:
        super().__init__(f"Codex refused {method} (error {code}); `server_message` has its words")
        self.method = method
        self.code = code
        self.server_message = server_message


class UnansweredError(CodexError):
    """The app-server did not answer a request in time. It may have been executed.

    Attributes:
      method: what was asked.
      deadline_s: how long was waited.
    """

    def __init__(self, method: str, deadline_s: float) -> None:
        super().__init__(f"Codex did not answer {method} within {deadline_s:g} s")
        self.method = method
        self.deadline_s = deadline_s
