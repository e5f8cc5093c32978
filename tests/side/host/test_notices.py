"""What providers say that belongs to no session: kept, passed on, and nobody's event."""

from tutti_providers.scripted import Script, scripted
from tutti_side import open_host
from tutti_side.contract import Notice, RateLimit
from tutti_side.host.notices import NOTICES_KEPT_MAX, NoticeBoard

WARNING = Notice(kind="warning", subject="config", message="beware")


class Listener:
    """Keeps what it is told."""

    def __init__(self, fails: bool = False) -> None:
        self.heard: list[Notice] = []
        self._fails = fails

    def notice(self, notice: Notice) -> None:
        self.heard.append(notice)
        if self._fails:
            raise ValueError("the listener's own")


async def test_a_host_passes_on_what_its_providers_say_under_their_names() -> None:
    """Our choice: one port for all providers."""
    listener = Listener()
    one, two = (scripted(Script(notices=(WARNING,)), name=name) for name in ("one", "two"))
    async with open_host(one, two, notices=listener) as host:
        assert [notice.provider for notice in listener.heard] == ["one", "two"]
        assert host.notices() == tuple(listener.heard)
        assert listener.heard[0].message == "beware"
        assert host.statistics().failed_notices == 0


async def test_without_a_listener_the_latest_can_be_read() -> None:
    """Our choice: a window that is opened later still finds the warning."""
    async with open_host(scripted(Script(notices=(WARNING,)))) as host:
        assert [notice.message for notice in host.notices()] == ["beware"]


async def test_a_listener_that_raises_harms_nobody_and_is_counted() -> None:
    """R10: it is called in a reader that all sessions of the provider share."""
    listener = Listener(fails=True)
    async with open_host(scripted(Script(notices=(WARNING, WARNING))), notices=listener) as host:
        assert len(listener.heard) == 2
        assert host.statistics().failed_notices == 2
        session = await host.start_session(cwd=".")
        assert (await session.ask("hi")).text


def test_only_so_many_are_kept_and_of_allowances_only_the_newest() -> None:
    """R12: allowances come after each answer of a model, and would push every warning out."""
    board = NoticeBoard(None)
    port = board.of("one")
    port.notice(WARNING)
    for percent in range(NOTICES_KEPT_MAX * 2):
        limit = RateLimit(name="primary", used_percent=percent)
        for name in ("one", "two"):
            board.of(name).notice(Notice(kind="rate_limits", subject="limits", limits=(limit,)))
    assert [(notice.kind, notice.provider) for notice in board.kept] == [
        ("warning", "one"),
        ("rate_limits", "one"),
        ("rate_limits", "two"),
    ]
    assert {notice.limits[0].used_percent for notice in board.kept[1:]} == {NOTICES_KEPT_MAX * 2 - 1}
    for number in range(NOTICES_KEPT_MAX):
        port.notice(Notice(kind="other", subject=str(number)))
    assert [notice.subject for notice in board.kept] == [str(number) for number in range(NOTICES_KEPT_MAX)]
