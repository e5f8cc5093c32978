"""The lifecycle of one Side, as a table. Pure.

``reserved`` (waits for the locks) → ``opening`` (the provider branches) → ``open`` → ``closing`` (the provider is
told) → ``closed`` or ``expired``. An open that fails or is cancelled goes through ``draining`` (something of it may
still come from the provider) to ``failed``; nothing was committed, so the identity may be tried again. A Side that was
closed, or ended, before it was open goes through ``draining`` as well, and its identity is used up. ``closed`` and
``expired`` are for ever. A step that the table lacks raises, and leaves the state as it was.
"""

from typing import Literal

__all__ = ["TRANSITIONS", "SideLifecycle", "SideState", "Step"]

SideState = Literal["reserved", "opening", "open", "closing", "closed", "draining", "failed", "expired"]
Step = Literal["start", "commit", "abort", "release", "close", "end_closed", "end_expired"]

TRANSITIONS: dict[SideState, dict[Step, SideState]] = {
    "reserved": {"start": "opening", "abort": "draining"},
    "opening": {"commit": "open", "abort": "draining"},
    "open": {"close": "closing"},
    "closing": {"end_closed": "closed", "end_expired": "expired"},
    "draining": {"release": "failed", "end_closed": "closed", "end_expired": "expired"},
    "closed": {},
    "failed": {},
    "expired": {},
}


class SideLifecycle:
    """Where one Side stands."""

    def __init__(self) -> None:
        self.state: SideState = "reserved"

    def step(self, step: Step) -> SideState:
        """Take a step and return the new state.

        Raises:
          RuntimeError: the table has no such step from here; a bug of ours.
        """
        try:
            self.state = TRANSITIONS[self.state][step]
        except KeyError:
            raise RuntimeError(f"a Side that is {self.state} cannot {step}; please report this bug") from None
        return self.state
