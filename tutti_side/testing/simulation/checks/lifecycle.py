"""R4, R5, R6, R8: one branch for each identity, no open in a close, nothing left of either, and no way back."""

from collections import defaultdict
from collections.abc import Iterator

from tutti_side.testing.simulation.checks._facts import Branch, Facts, Violation
from tutti_side.testing.simulation.records import (
    BranchAsked,
    Leftover,
    ReleaseAnswered,
    ReleaseAsked,
    ResumeAsked,
    SideEnded,
    SideOpened,
    TurnAsked,
)

__all__ = [
    "nothing_is_left",
    "one_branch_for_each_identity",
    "over_is_over",
    "source_close_and_open_never_interleave",
]

DRAINING_S = 30.0
"""An identity whose open was given up is draining until its child is released, and so long at most: from then on it
may be branched again, though the first branch was never answered or its child could not be released."""


def one_branch_for_each_identity(facts: Facts) -> Iterator[Violation]:
    """R4: no second branch for an owner while one is under way or its child is held, and none once it was open.

    What the connection's end or `DRAINING_S` has ended is no longer under way.
    """
    opened = _first(facts, SideOpened)
    earlier: dict[str, list[Branch]] = defaultdict(list)
    for branch in facts.branches:
        owner, index = branch.ask.owner, branch.asked
        if not owner:
            yield facts.violation("R4", index, f"a branch of {branch.ask.source} says for nobody")
            continue
        if owner in opened and opened[owner] < index:
            yield facts.violation("R4", index, f"{owner} is branched again after it was open")
        for other in earlier[owner]:
            if not _is_done(facts, other, index):
                state = "under way" if other.answered is None or other.answered > index else f"held as {other.child}"
                yield facts.violation("R4", index, f"{owner} is branched a second time; the first is {state}")
        earlier[owner].append(branch)


def _is_done(facts: Facts, branch: Branch, index: int) -> bool:
    """True when nothing of a branch is under way or held any more at a record.

    A release that is asked for in the same instant counts: the identity is free when the late answer comes, which
    begins the release.
    """
    if facts.is_connection_over(branch.ask.connection, index):
        return True
    answered = branch.answered is not None and branch.answered < index
    since = branch.answered if answered and branch.answered is not None else branch.asked
    if facts.records[index].at_s - facts.records[since].at_s >= DRAINING_S:
        return True
    released = facts.released.get(branch.child)
    is_released = released is not None and facts.records[released].at_s <= facts.records[index].at_s
    return answered and (not branch.child or is_released)


def source_close_and_open_never_interleave(facts: Facts) -> Iterator[Violation]:
    """R5: a Side's branch, from its request to its open, has no release of its source and no other Side's branch in it.

    Only of those that came to be open, since what is given up lets the source go at once. A Side is open for sure
    where its first user was told; that is the instant of the commit, or later in the list but not in time. A source
    that its provider lost is released in the background, with nobody's lock.
    """
    opened = _first(facts, SideOpened)
    lost = {facts.child_at(owner, index) for owner, index in facts.expired.items()}
    releases: dict[str, list[int]] = defaultdict(list)
    for index, release in facts.each(ReleaseAsked):
        releases[release.child].append(index)
    whole: list[tuple[Branch, int]] = []
    for branch in facts.branches:
        first = opened.get(branch.ask.owner)
        opening = None if first is None else facts.records[first]
        if first is not None and isinstance(opening, SideOpened) and opening.child == branch.child:
            whole.append((branch, first))
    for branch, done in whole:
        source, owner, began = branch.ask.source, branch.ask.owner, branch.asked
        for at in releases[source]:
            is_within = began < at and facts.records[at].at_s < facts.records[done].at_s
            if source not in lost and (is_within or began < at < (branch.answered or done)):
                yield facts.violation("R5", at, f"{source} is released while {owner} is branched from it")
        for other in facts.branches:
            if other is not branch and other.ask.source == source and began < other.asked < (branch.answered or done):
                problem = f"{other.ask.owner} is branched from {source} while {owner} is"
                yield facts.violation("R5", other.asked, problem)


def nothing_is_left(facts: Facts) -> Iterator[Violation]:
    """R6: in the calm every child that is no open Side is released, and nothing is registered, routed or subscribed.

    A child is done with when its release was taken, or its connection has ended. An answer that names what was known
    before (a provider gone wrong) made no child.
    """
    for index, left in facts.each(Leftover):
        rule, _, rest = left.what.partition(" ")
        is_named = rule[:1] == "R" and rule[1:].isdigit()
        yield facts.violation(rule if is_named else "R6", index, rest if is_named else left.what)
    calm = facts.calm
    if calm is None:
        return
    taken = {release.child for index, release in facts.each(ReleaseAnswered) if index < calm}
    ended = _first(facts, SideEnded)
    opened_children = {opening.child for _, opening in facts.each(SideOpened)}
    for branch in facts.branches:
        child, owner = branch.child, branch.ask.owner
        if not child or branch.answered is None or branch.answered > calm or facts.side_children.get(child) != owner:
            continue
        is_over = child not in opened_children or ended.get(owner, calm) < calm
        if is_over and child not in taken and not facts.is_connection_over(branch.ask.connection, calm):
            yield facts.violation("R6", branch.answered, f"child {child} of {owner} is not released in the calm")


def over_is_over(facts: Facts) -> Iterator[Violation]:
    """R8: what has ended is neither opened, nor asked, nor branched again; a Side's child is never resumed.

    A question of before the end, that waited for its turn to be written, may go over the wire behind it.
    """
    ended = _first(facts, SideEnded)
    questions = [call for call in facts.calls if call.job.what in ("send", "ask")]
    for index, record in facts.all_of(SideOpened, TurnAsked, ResumeAsked, BranchAsked):
        if isinstance(record, ResumeAsked):
            if record.child in facts.side_children:
                yield facts.violation("R8", index, f"the child of {facts.side_children[record.child]} is resumed")
            continue
        if isinstance(record, SideOpened | BranchAsked):
            owner, what = record.owner, "is opened" if isinstance(record, SideOpened) else "is branched"
        elif isinstance(record, TurnAsked):
            owner, what = facts.side_children.get(record.child, ""), "is asked"
        else:
            continue
        if ended.get(owner, index) < index:
            at = ended[owner]
            end = facts.records[at]
            if isinstance(record, TurnAsked) and any(
                call.began < at and (call.job.owner, call.job.detail) == (owner, record.question) for call in questions
            ):
                continue
            yield facts.violation("R8", index, f"{owner} {what} after its end at {end.at_s:.6f}")


def _first(facts: Facts, kind: type[SideOpened] | type[SideEnded]) -> dict[str, int]:
    """Owner → index of its first record of a kind."""
    found: dict[str, int] = {}
    for index, record in facts.all_of(kind):
        if isinstance(record, SideOpened | SideEnded):
            found.setdefault(record.owner, index)
    return found
