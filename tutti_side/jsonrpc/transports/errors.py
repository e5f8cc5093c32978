"""What can go wrong before there is a stream."""

import errno
import os
from collections.abc import Sequence

from tutti_side.jsonrpc.errors import JsonRpcError

__all__ = ["ProcessStartError"]

_HINTS = {
    errno.ENOENT: "check the path, or the PATH of the environment that is passed on",
    errno.EACCES: "it must be a file that this user may execute (chmod +x)",
    errno.ENOEXEC: "it is neither a binary of this system nor a script with a #! line",
    errno.E2BIG: "the arguments and the environment are too large for the system",
}
_CWD_HINT = "the working directory must exist and be one that this user may enter"
_GUARD_HINT = "the Python that runs this program must be able to start itself (sys.executable)"


class ProcessStartError(JsonRpcError):
    """A child process could not be started. Nothing of the attempt is left.

    Attributes:
      command: the command's first word; arguments can hold secrets and are not kept.
      stage: `cwd` (entering the working directory), `exec` (executing the command) or `guard` (starting the guard
      process).
      errno: the system's error number; None when there is none, as for a guard that ended without a word.
      stderr_tail: what the attempt wrote to stderr, last lines.
    """

    def __init__(
        self,
        command: str,
        *,
        stage: str,
        errno: int | None = None,
        cwd: str | None = None,
        detail: str = "",
        stderr_tail: Sequence[str] = (),
    ) -> None:
        reason = detail or (os.strerror(errno) if errno else "unknown reason")
        if stage == "cwd":
            sentence = f"cannot start {command!r} in {cwd!r}: {reason}; {_CWD_HINT}"
        elif stage == "exec":
            hint = _HINTS.get(errno or 0, "try to run it by hand")
            sentence = f"cannot execute {command!r}: {reason}; {hint}"
        else:
            sentence = f"cannot start the guard process of {command!r}: {reason}; {_GUARD_HINT}"
        super().__init__(sentence)
        self.command = command
        self.stage = stage
        self.errno = errno
        self.stderr_tail = tuple(stderr_tail)
