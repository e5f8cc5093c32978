"""Locks in one stable order."""

import itertools

import pytest
import trio
import trio.testing

from tutti_side.contract import CanonicalRef, ScopeRef, SessionId, SideId, SideRef, WorkspaceId
from tutti_side.runtime._lifecycle_locks import LifecycleLocks, lock_order

W = WorkspaceId("w")
A, B, C = (CanonicalRef(W, SessionId(name)) for name in "abc")
SIDE = SideRef(W, SideId("a"))


async def test_any_two_holders_of_overlapping_keys_finish_whatever_the_order_given() -> None:
    """R5: crossed identities never wait for each other."""
    locks = LifecycleLocks()
    inside = 0

    async def hold(refs: tuple[ScopeRef, ...]) -> None:
        nonlocal inside
        async with locks.hold(*refs):
            inside += 1
            assert inside == 1
            await trio.testing.wait_all_tasks_blocked()
            inside -= 1

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            everyone: list[ScopeRef] = [A, B, SIDE]
            for refs in itertools.permutations(everyone):
                nursery.start_soon(hold, refs)
    assert locks.in_use == 0


def test_the_order_is_by_workspace_then_id() -> None:
    """Architecture §4.3."""
    other = CanonicalRef(WorkspaceId("v"), SessionId("z"))
    refs: list[ScopeRef] = [B, SIDE, A, other]
    assert sorted(refs, key=lock_order) == [other, A, SIDE, B]


async def test_disjoint_keys_do_not_wait() -> None:
    """Our choice: one Side's open does not delay another's."""
    locks = LifecycleLocks()
    with trio.fail_after(5):
        async with locks.hold(A), locks.hold(B, C):
            assert locks.in_use == 3
            assert locks.waiting == 0


async def test_a_cancelled_waiter_gives_back_what_it_took() -> None:
    """R14."""
    locks = LifecycleLocks()
    async with locks.hold(B):
        with trio.move_on_after(0):
            async with locks.hold(A, B):
                pytest.fail("it was held by another")
        assert locks.in_use == 1
        with trio.fail_after(5):
            async with locks.hold(A):
                pass
    assert locks.in_use == 0
