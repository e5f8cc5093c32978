"""What ``tutti-side demo`` asks, and what it must then see; each provider's test bed makes its model say it."""

import msgspec

__all__ = ["DemoPlan", "plan_demo"]


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo asks, and what it must then see."""

    parent_prompt: str = "Refactor the parser"
    side_question: str = "What does the tokenizer do?"
    parent_tokens: tuple[str, ...]
    """All the parent says, in order."""
    side_tokens: tuple[str, ...]
    """All the Side says, in order; none of it may stand in a file of the provider's."""
    parent_held_at: int
    """So many parent tokens are said freely; the rest waits for the gate."""
    parent_gate: str = "parent-rest"
    """Opened by the demo once its Side is closed: so the Side lies inside the parent's turn on any machine."""


def plan_demo(parent_tokens: int, side_tokens: int) -> DemoPlan:
    """Plan a demo whose last third of the parent's turn is held back.

    Args:
      parent_tokens: how long the parent's turn is.
      side_tokens: how long the Side's answer is.
    """
    return DemoPlan(
        parent_tokens=tuple(f"parent-{number} " for number in range(parent_tokens)),
        side_tokens=tuple(f"side-{number} " for number in range(side_tokens)),
        parent_held_at=parent_tokens * 2 // 3,
    )
