"""Named points that a script waits at until a test or program lets it pass."""

import trio

__all__ = ["Gates"]


class Gates:
    """All gates of one provider, made by whoever names one first."""

    def __init__(self) -> None:
        self._gates: dict[str, trio.Event] = {}
        self._reached: dict[str, int] = {}
        self._watchers: list[tuple[str, int, trio.Event]] = []

    def gate(self, name: str) -> trio.Event:
        """Return a gate; once set it stays open."""
        return self._gates.setdefault(name, trio.Event())

    async def pass_through(self, name: str) -> None:
        """Note that it was reached, and wait until it is open."""
        self._reached[name] = self._reached.get(name, 0) + 1
        for watched, times, event in self._watchers:
            if watched == name and self._reached[name] >= times:
                event.set()
        await self.gate(name).wait()

    async def wait_reached(self, name: str, times: int) -> None:
        """Wait until a gate was reached so often, whether or not it was passed.

        Cancellation: harmless.
        """
        if self._reached.get(name, 0) >= times:
            await trio.lowlevel.checkpoint()
            return
        watcher = (name, times, trio.Event())
        self._watchers.append(watcher)
        try:
            await watcher[2].wait()
        finally:
            self._watchers.remove(watcher)
