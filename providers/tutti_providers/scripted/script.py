"""What a scripted provider does, as data. Pure.

A `Script` holds cues: what happens at a start, an open, a close, a turn. The first cue that matches and has plays
left is taken; where none matches, nothing unusual happens and a turn is answered by the script's `fallback`. Steps are
played in order, without real time unless one waits. The same script and the same calls make the same events.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, get_args

import msgspec

from tutti_providers.scripted.errors import InvalidScriptError
from tutti_side.contract import (
    ADAPTER_EVENTS,
    Event,
    InteractionKind,
    InteractionOption,
    InteractionQuestion,
    Notice,
    SideCapabilities,
)

__all__ = [
    "ALL_CAPABILITIES",
    "APPROVAL_OPTIONS",
    "Ask",
    "Closing",
    "Drop",
    "Echo",
    "Emit",
    "EndStep",
    "Fail",
    "LateStep",
    "Opening",
    "OwnTurn",
    "PhaseStep",
    "Recall",
    "Say",
    "Script",
    "Starting",
    "Step",
    "Turn",
    "Wait",
    "words",
]

ALL_CAPABILITIES = SideCapabilities(
    supported=True,
    active_source_turn=True,
    ephemeral=True,
    hide_inherited_turns=True,
    model_boundary_injected=True,
)
"""Everything a Side needs; replace a fact with `msgspec.structs.replace` to see what happens without it."""

APPROVAL_OPTIONS = (
    InteractionOption("accept", "Yes"),
    InteractionOption("accept_for_session", "Yes, for this session"),
    InteractionOption("decline", "No"),
    InteractionOption("cancel", "No, and stop"),
)
"""The options of an approval when a script names none."""


def words(text: str) -> tuple[str, ...]:
    """Cut a text into the pieces in which a model would say it; joined they are the text."""
    pieces = text.split(" ")
    return tuple(f"{piece} " for piece in pieces[:-1]) + ((pieces[-1],) if pieces[-1] else ())


# Steps


class Say(msgspec.Struct, frozen=True):
    """Say a message, piece by piece, then as a whole."""

    texts: tuple[str, ...]
    """One delta each."""
    item: str | None = None
    """Name of the message within its turn: the same name again goes on with the same message. None: a new one."""
    delay_s: float = 0.0
    """Seconds before each emission; 0 lets other tasks run, no more."""
    per_emission: int = 1
    """Deltas that leave together, as one batch."""
    is_completed: bool = True
    """False: the whole text is not said at the end, as by a model that is cut off."""

    def __post_init__(self) -> None:
        if self.delay_s < 0:
            raise InvalidScriptError("Say.delay_s", "is negative")
        if self.per_emission < 1:
            raise InvalidScriptError("Say.per_emission", "is below 1")


class Echo(msgspec.Struct, frozen=True):
    """Say ``You said: …``, and in a Side how many messages it inherited."""


class Recall(msgspec.Struct, frozen=True):
    """Say every message that a Side inherited, one message each; nothing in a canonical session."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait so many seconds, or until the test opens a gate (`ScriptedProvider.gate`). One of the two."""

    seconds: float | None = None
    gate: str | None = None

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.gate is None):
            raise InvalidScriptError("Wait", "takes either seconds or a gate")
        if self.seconds is not None and self.seconds < 0:
            raise InvalidScriptError("Wait.seconds", "is negative")


class Emit(msgspec.Struct, frozen=True):
    """Emit events as they stand, as one batch: state patches, command snapshots, options, audits, or nonsense."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        for event in self.events:
            if not isinstance(event, ADAPTER_EVENTS):
                raise InvalidScriptError("Emit.events", f"holds a {type(event).__name__}, which no adapter emits")


class Fail(msgspec.Struct, frozen=True):
    """Fail the turn, or the operation that this step is played in. Nothing after it is played."""

    message: str = "the script says so"


class Drop(msgspec.Struct, frozen=True):
    """The provider's process is gone: everything on the same connection is lost. Nothing after it is played."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the user, wait for the answer, and go on as it says."""

    title: str
    kind: InteractionKind = "approval"
    detail: str = ""
    options: tuple[InteractionOption, ...] | None = None
    """None: `APPROVAL_OPTIONS`, or none for a question."""
    questions: tuple[InteractionQuestion, ...] = ()
    answers: Mapping[str, tuple["Step", ...]] = msgspec.field(default_factory=dict[str, tuple["Step", ...]])
    """Option id → what is played when it is chosen."""
    then: tuple["Step", ...] = ()
    """What is played after any other answer."""
    taken_back_after_s: float | None = None
    """The provider itself ends the interaction after so many seconds; the turn then goes on after this step."""
    is_waiting: bool = True
    """False: the turn goes on at once, whatever is answered; what is still open at its end is superseded."""

    def __post_init__(self) -> None:
        if self.kind == "question":
            if not self.questions:
                raise InvalidScriptError("Ask.questions", "is empty, though it is a question")
            if self.options or self.answers:
                raise InvalidScriptError("Ask.options", "are given, though it is a question")
        elif self.questions:
            raise InvalidScriptError("Ask.questions", f"are given, though it is of kind {self.kind}")
        unknown = set(self.answers) - {option.id for option in self.offered}
        if unknown:
            raise InvalidScriptError("Ask.answers", f"names no option: {', '.join(sorted(unknown))}")
        for option_id, steps in self.answers.items():
            _check_steps(f"Ask.answers[{option_id}]", steps, Step)
        _check_steps("Ask.then", self.then, Step)
        if not self.is_waiting and (self.answers or self.then or self.taken_back_after_s is not None):
            raise InvalidScriptError("Ask.is_waiting", "is False, so nothing can depend on the answer")

    @property
    def offered(self) -> tuple[InteractionOption, ...]:
        """The options as they are shown."""
        if self.options is not None:
            return self.options
        return () if self.kind == "question" else APPROVAL_OPTIONS


class OwnTurn(msgspec.Struct, frozen=True):
    """A turn that the provider begins by itself, before it has answered the start or open that this is played in.

    The steps up to the first that waits are played at once; the rest goes on meanwhile.
    """

    steps: tuple["Step", ...]

    def __post_init__(self) -> None:
        _check_steps("OwnTurn.steps", self.steps, Step)


Step: TypeAlias = Say | Echo | Recall | Wait | Emit | Ask | Fail | Drop
"""What a turn is made of."""

PhaseStep: TypeAlias = Wait | Emit | OwnTurn | Fail | Drop
"""What may happen before a start or open is answered."""

EndStep: TypeAlias = Wait | Emit | Fail | Drop
"""What may happen before a turn begins, or while something is closed."""

LateStep: TypeAlias = Wait | Emit
"""What may still come when something is over."""


def _check_steps(field: str, steps: Sequence[object], allowed: object) -> None:
    """Hold a list of steps against a union; scripts are not all typed."""
    for step in steps:
        if not isinstance(step, get_args(allowed)):
            raise InvalidScriptError(field, f"holds a {type(step).__name__}, which cannot be played there")


# Cues


class _Cue(msgspec.Struct, frozen=True, kw_only=True):
    """When something is played, and how often."""

    when: str | Callable[[str], bool] | None = None
    """For a turn: a part of the user's text. For others: the id of the session or Side. Or a predicate. None: any."""
    times: int | None = None
    """Plays at most so often; None: always. With ``times=1`` cues are played one after the other."""

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise InvalidScriptError(f"{type(self).__name__}.times", "is below 1")

    def matches(self, key: str) -> bool:
        """True when this cue is meant."""
        if self.when is None or isinstance(self.when, str):
            return self.when is None or self.when == key
        return self.when(key)


class Turn(_Cue, frozen=True, kw_only=True):
    """What is said to a user's text."""

    steps: tuple[Step, ...]
    in_side: bool | None = None
    """True: only in a Side; False: only in a canonical session."""
    before: tuple[EndStep, ...] = ()
    """Played before the turn begins; a `Fail` refuses it."""
    answered_after: Wait | None = None
    """The call that began the turn is answered so late, while the turn's events come already."""
    is_stubborn: bool = False
    """An interrupt is taken, and changes nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_steps("Turn.steps", self.steps, Step)
        _check_steps("Turn.before", self.before, EndStep)

    def matches(self, key: str) -> bool:
        """True when this turn answers the text."""
        return self.when in key if isinstance(self.when, str) else super().matches(key)


class Starting(_Cue, frozen=True, kw_only=True):
    """What happens when a canonical session is started or resumed."""

    steps: tuple[PhaseStep, ...] = ()
    late: tuple[LateStep, ...] = ()
    """What the provider still says of a session whose start failed or was given up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_steps("Starting.steps", self.steps, PhaseStep)
        _check_steps("Starting.late", self.late, LateStep)


class Opening(_Cue, frozen=True, kw_only=True):
    """What happens when a Side is opened."""

    steps: tuple[PhaseStep, ...] = ()
    late: tuple[LateStep, ...] = ()
    """What the provider still says of a child whose open failed or was given up."""
    seen: SideCapabilities | None = None
    """What the result attests; None: what was promised."""
    provider_session_id: str | None = None
    """What the result calls the child, instead of its own fresh id."""
    source_provider_session_id: str | None = None
    """What the result says was branched, instead of the source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_steps("Opening.steps", self.steps, PhaseStep)
        _check_steps("Opening.late", self.late, LateStep)


class Closing(_Cue, frozen=True, kw_only=True):
    """What happens when a session or Side is closed.

    A `Fail` leaves it loaded: on a shared connection the provider's nursery tries again; a connection of the Side's own
    goes to the host's sweeper. Each further attempt is a play of its own, so ``times`` is how often it fails.
    """

    steps: tuple[EndStep, ...] = ()
    late: tuple[LateStep, ...] = ()
    """What the provider still says of it afterwards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_steps("Closing.steps", self.steps, EndStep)
        _check_steps("Closing.late", self.late, LateStep)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a scripted provider does."""

    turns: tuple[Turn, ...] = ()
    fallback: tuple[Step, ...] = (Echo(),)
    """What is said to a text that no turn matches."""
    starts: tuple[Starting, ...] = ()
    opens: tuple[Opening, ...] = ()
    closes: tuple[Closing, ...] = ()
    capabilities: SideCapabilities = ALL_CAPABILITIES
    """What is promised for a live source."""
    notices: tuple[Notice, ...] = ()
    """What is said, when the provider is opened, that belongs to no session."""
    historical_capabilities: SideCapabilities = ALL_CAPABILITIES
    """What is promised for a source that is not live but kept."""

    def __post_init__(self) -> None:
        _check_steps("Script.fallback", self.fallback, Step)
