"""What a run is made of: who there is, what each is asked, and what the model says to it. Drawn, and pure.

A session's owner is ``p0.1``: the first session that was started in slot 0. A Side's is ``a/s3``: side id ``s3`` in
workspace ``a``. Each token of an answer begins with its owner, so that a text says whose it is wherever it turns up.
"""

import random

from tutti_side.contract import CanonicalRef, SessionId, SideId, SideRef, WorkspaceId
from tutti_side.testing.simulation.records import AskKind, World

__all__ = [
    "ASKING",
    "FLOOD",
    "HOSTS",
    "INCARNATIONS_MAX",
    "QUESTIONS",
    "SESSIONS",
    "SIDES",
    "WORKSPACES",
    "draw_world",
    "fresh_side",
    "owner_of_side",
    "question",
    "session_ref",
    "side_owners",
    "side_ref",
    "tokens",
    "workspace_of",
]

WORKSPACES = ("a", "b")
"""Side ids of the one are Side ids of the other as well, and are other Sides."""

SESSIONS = 3
"""Slots for canonical sessions: two in the first workspace, one in the second. All may be on one connection."""

INCARNATIONS_MAX = 6
"""Sessions that are started in one slot, at most; in the calm there is always one left."""

SIDES = 4
"""Side ids for each host; fewer than jobs, so that they meet."""

HOSTS = 2
"""Hosts of one run, at most: one after another."""

QUESTIONS = 4
"""Questions to each owner: longer answers the higher the number."""

ASKING = 3
"""The turn of this question asks its user something before it answers."""

FLOOD = 9
"""The answer to this question is more than a subscriber's queue holds; few runs have it, and one owner."""

FLOOD_CHANCE = 0.03
"""How often a run has it: ten megabytes take time."""

FLOOD_TOKENS = 36
"""Each a quarter of a mebibyte: together beyond the bound of a queue, eight."""

FLOOD_TOKEN_BYTES = 256 << 10

ASK_KINDS: tuple[AskKind, ...] = ("command", "change", "input", "elicitation")


def workspace_of(slot: int) -> str:
    """Return the workspace of a session's slot."""
    return WORKSPACES[slot // 2]


def session_ref(owner: str) -> CanonicalRef:
    """Return the identity of the session of that name."""
    return CanonicalRef(WorkspaceId(workspace_of(int(owner[1]))), SessionId(owner))


def side_ref(owner: str) -> SideRef:
    """Return the identity of the Side of that name."""
    workspace, _, side = owner.partition("/")
    return SideRef(WorkspaceId(workspace), SideId(side))


def owner_of_side(workspace: str, host: int, number: int) -> str:
    """Name a Side; no two hosts have one name, since what is over is remembered by the host that ended it."""
    return f"{workspace}/s{host * SIDES + number}"


def fresh_side(slot: int) -> str:
    """Name the Side that proves, in the calm, that a slot's session can still be branched."""
    return f"{workspace_of(slot)}/fresh{slot}"


def side_owners() -> list[str]:
    """Name every Side that can be opened in a run."""
    hosts = [(workspace, host) for workspace in WORKSPACES for host in range(HOSTS)]
    owners = [owner_of_side(workspace, host, number) for workspace, host in hosts for number in range(SIDES)]
    return owners + [fresh_side(slot) for slot in range(SESSIONS)]


def question(owner: str, number: int) -> str:
    """What is asked: the brackets keep one question from being a part of another."""
    return f"<{owner}/{number}>"


def tokens(owner: str, number: int) -> tuple[str, ...]:
    """Return the answer to it."""
    if number == FLOOD:
        word = f"{owner}/{number} "
        return (word * (FLOOD_TOKEN_BYTES // len(word)),) * FLOOD_TOKENS
    return tuple(f"{owner}/{number}.{position} " for position in range(4 + 3 * number))


def draw_world(rng: random.Random) -> tuple[World, str]:
    """Draw a run's world, and the name of the one owner, often none, whose answer to `FLOOD` is there."""
    owners = [f"p{slot}.{number + 1}" for slot in range(SESSIONS) for number in range(INCARNATIONS_MAX)] + side_owners()
    first = [owner_of_side(workspace, 0, number) for workspace in WORKSPACES for number in range(SIDES)]
    first += [f"p{slot}.1" for slot in range(SESSIONS)]  # those are in most runs
    flooded = rng.choice(first) if rng.random() < FLOOD_CHANCE else ""
    answers = {question(owner, n): tokens(owner, n) for owner in owners for n in range(QUESTIONS)}
    if flooded:
        answers[question(flooded, FLOOD)] = tokens(flooded, FLOOD)
    approvals = {question(owner, ASKING): tuple(rng.sample(ASK_KINDS, rng.randint(1, 2))) for owner in owners}
    return World(answers=answers, approvals=approvals), flooded
