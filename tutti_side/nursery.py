"""One nursery per owner, from which the block's own exception leaves as itself.

A plain Trio nursery wraps whatever its block raises in a group. Our context managers stand around *user* code, where
`except SomeError` must go on working, so they use `open_service_nursery` instead.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import trio

__all__ = ["open_service_nursery"]


@asynccontextmanager
async def open_service_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks serve the block: they are cancelled when it ends.

    Raises:
      the exception of the block, as itself, when all tasks ended well;
      BaseExceptionGroup: a task of ours failed. An exception of the block that came with it is in the group.

    Cancellation: the tasks are cancelled with the block, and waited for.

    Source: architecture, "Ends": only failures of our own tasks come as a group.
    """
    block_error: BaseException | None = None
    nursery: trio.Nursery | None = None
    task_failed = False
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except trio.Cancelled:
                raise
            except BaseException as error:
                block_error = error
            task_failed = nursery.cancel_scope.cancel_called
            nursery.cancel_scope.cancel(reason="the block that these tasks serve has ended")
    except BaseExceptionGroup as group:
        if block_error is None:
            raise
        # Nothing but `Cancelled` is a cancel from outside that reached our tasks too: none of them failed.
        if group.split(trio.Cancelled)[1] is not None:
            kept = _without_cancellation(block_error) if task_failed else block_error
            if kept is None:
                raise
            raise BaseExceptionGroup(
                "the block failed, and so did a task that serves it", [kept, *group.exceptions]
            ) from None
    if block_error is not None:
        try:
            raise block_error
        finally:
            del block_error  # or the traceback holds a cycle through this frame


def _without_cancellation(error: BaseException) -> BaseException | None:
    """Drop the `Cancelled` parts that a failed task of ours caused; they belong to the nursery that is gone."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return group.split(trio.Cancelled)[1]
    return error
