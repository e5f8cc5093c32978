"""Scripts as data: what can be written down, which cue is next, what is kept of what was said. All pure."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tutti_providers.scripted import (
    APPROVAL_OPTIONS,
    Ask,
    Closing,
    Echo,
    Emit,
    Fail,
    InvalidScriptError,
    Opening,
    OwnTurn,
    Say,
    Script,
    Starting,
    Turn,
    Wait,
    words,
)
from tutti_providers.scripted._reader import ScriptReader
from tutti_providers.scripted._thread import check_answer
from tutti_providers.scripted._transcript import (
    KEPT_MAX,
    MESSAGE_CHARACTERS_MAX,
    MESSAGES_MAX,
    KeptSessions,
    Message,
    Transcript,
)
from tutti_providers.scripted.errors import SessionHeldError, SessionNotKeptError
from tutti_side.contract import (
    InteractionAnswer,
    InteractionOption,
    InteractionQuestion,
    InvalidAnswerError,
    SessionStarted,
)

# Scripts


def foreign(step: object) -> Any:
    """A step where the types do not allow it: not all scripts are checked by a type checker."""
    return (step,)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("Wait", Wait),
        ("Wait", lambda: Wait(seconds=1, gate="g")),
        ("Wait.seconds", lambda: Wait(seconds=-1)),
        ("Say.delay_s", lambda: Say((), delay_s=-1)),
        ("Say.per_emission", lambda: Say((), per_emission=0)),
        ("Emit.events", lambda: Emit((SessionStarted("p"),))),
        ("Ask.questions", lambda: Ask(kind="question", title="t")),
        ("Ask.questions", lambda: Ask(title="t", questions=(InteractionQuestion("q", "?"),))),
        (
            "Ask.options",
            lambda: Ask(
                kind="question", title="t", questions=(InteractionQuestion("q", "?"),), options=APPROVAL_OPTIONS
            ),
        ),
        ("Ask.answers", lambda: Ask(title="t", answers={"maybe": ()})),
        ("Ask.is_waiting", lambda: Ask(title="t", is_waiting=False, then=(Say(("x",)),))),
        ("Turn.times", lambda: Turn(steps=(), times=0)),
        ("Turn.steps", lambda: Turn(steps=foreign(OwnTurn(())))),
        ("Turn.before", lambda: Turn(steps=(), before=foreign(Echo()))),
        ("OwnTurn.steps", lambda: OwnTurn(foreign("text"))),
        ("Ask.then", lambda: Ask(title="t", then=foreign(OwnTurn(())))),
        ("Ask.answers[accept]", lambda: Ask(title="t", answers={"accept": foreign(None)})),
        ("Starting.steps", lambda: Starting(steps=foreign(Echo()))),
        ("Starting.late", lambda: Starting(late=foreign(Fail()))),
        ("Opening.steps", lambda: Opening(steps=foreign(Echo()))),
        ("Opening.late", lambda: Opening(late=foreign(Fail()))),
        ("Closing.steps", lambda: Closing(steps=foreign(OwnTurn(())))),
        ("Closing.late", lambda: Closing(late=foreign(Fail()))),
        ("Script.fallback", lambda: Script(fallback=foreign("text"))),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_where_it_is_written(field: str, make: Callable[[], object]) -> None:
    """Our choice: the error names the part, before anything is opened."""
    with pytest.raises(InvalidScriptError) as caught:
        make()
    assert caught.value.field == field


def test_a_text_is_cut_into_pieces_that_make_it_up_again() -> None:
    """Our choice."""
    for text in ("", "one", "one two", " two  spaces ", "line\nbreak and more"):
        assert "".join(words(text)) == text
    assert words("one two") == ("one ", "two")


def test_the_first_matching_turn_with_plays_left_is_taken() -> None:
    """Our choice: by text, in order, so often, in a Side or not; otherwise the fallback."""
    once, again, picky, side_only = (
        Turn(steps=(Say(("1",)),), when="b", times=1),
        Turn(steps=(Say(("2",)),), when="b", times=2),
        Turn(steps=(Say(("3",)),), when=lambda text: text.startswith("x")),
        Turn(steps=(Say(("4",)),), in_side=True),
    )
    reader = ScriptReader(Script(turns=(once, again, picky, side_only)))
    assert [reader.turn("abc", in_side=False) for _ in range(3)] == [once, again, again]
    assert reader.turn("abc", in_side=False).steps == Script().fallback
    assert reader.turn("xyz", in_side=False) is picky
    assert reader.turn("abc", in_side=True) is side_only


def test_two_equal_cues_are_counted_apart() -> None:
    """Our choice: a cue is counted by its place, so that the same one twice plays twice."""
    cue = Turn(steps=(Say(("1",)),), times=1)
    reader = ScriptReader(Script(turns=(cue, cue)))
    assert [reader.turn("x", in_side=False).times for _ in range(3)] == [1, 1, None]


def test_starts_opens_and_closes_are_found_by_whole_id() -> None:
    """Our choice: ``side-1`` is not ``side-10``."""
    reader = ScriptReader(
        Script(
            starts=(Starting(when="a", times=1),),
            opens=(Opening(when="side-1", provider_session_id="p"),),
            closes=(Closing(when=lambda scope: scope == "z", times=7),),
        )
    )
    assert reader.starting("ab").times is None
    assert reader.starting("a").times == 1
    assert reader.opening("side-10").provider_session_id is None
    assert reader.opening("side-1").provider_session_id == "p"
    assert reader.closing("y").times is None
    assert reader.closing("z").times == 7


# Answers


QUESTION = Ask(
    kind="question",
    title="t",
    questions=(
        InteractionQuestion("free", "?"),
        InteractionQuestion("offered", "?", options=("a", "b"), takes_free_text=False),
        InteractionQuestion("left out", "?", is_optional=True),
    ),
)


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (Ask(title="t"), InteractionAnswer(option_id="accept")),
        (Ask(kind="plan", title="t", options=(InteractionOption("go", "Go"),)), InteractionAnswer(option_id="go")),
        (QUESTION, InteractionAnswer(answers={"free": ("x",), "offered": ("a", "b")})),
    ],
)
def test_an_answer_that_fits_is_taken(ask: Ask, answer: InteractionAnswer) -> None:
    """Contract: an option for approvals and plans, answers by question id for questions."""
    check_answer(ask, answer)


@pytest.mark.parametrize(
    ("field", "ask", "answer"),
    [
        ("option_id", Ask(title="t"), InteractionAnswer()),
        ("option_id", Ask(title="t"), InteractionAnswer(option_id="maybe")),
        ("answers", Ask(title="t"), InteractionAnswer(option_id="accept", answers={"q": ("x",)})),
        ("option_id", QUESTION, InteractionAnswer(option_id="a")),
        ("answers", QUESTION, InteractionAnswer(answers={"free": ("x",)})),
        ("answers", QUESTION, InteractionAnswer(answers={"free": ("x",), "offered": ("a",), "third": ("x",)})),
        ("answers[free]", QUESTION, InteractionAnswer(answers={"free": (), "offered": ("a",)})),
        ("answers[free]", QUESTION, InteractionAnswer(answers={"free": (" ",), "offered": ("a",)})),
        ("answers[offered]", QUESTION, InteractionAnswer(answers={"free": ("secret",), "offered": ("c",)})),
    ],
)
def test_an_answer_that_does_not_fit_names_its_part_and_never_its_words(
    field: str, ask: Ask, answer: InteractionAnswer
) -> None:
    """Contract: `InvalidAnswerError`; secrets never reach messages."""
    with pytest.raises(InvalidAnswerError) as caught:
        check_answer(ask, answer)
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


# Transcripts


def test_a_branch_inherits_what_was_said_so_far_and_nothing_later() -> None:
    """Specification: the boundary is a snapshot, an active turn included."""
    transcript = Transcript()
    transcript.add_user("q")
    transcript.add_agent("i", "half ")
    snapshot = transcript.messages()
    transcript.add_agent("i", "whole")
    transcript.end_turn()
    transcript.add_agent("i", "new item")
    assert snapshot == (Message("user", "q"), Message("agent", "half "))
    assert transcript.messages() == (
        Message("user", "q"),
        Message("agent", "half whole"),
        Message("agent", "new item"),
    )
    child = Transcript(snapshot)
    child.add_user("side")
    assert child.messages() == (*snapshot, Message("user", "side"))


def test_a_transcript_is_bounded_in_messages_and_characters() -> None:
    """R12."""
    transcript = Transcript()
    for number in range(MESSAGES_MAX + 5):
        transcript.add_user(str(number))
    assert [message.text for message in transcript.messages()] == [str(n) for n in range(5, MESSAGES_MAX + 5)]
    for _ in range(3):
        transcript.add_agent("i", "x" * (MESSAGE_CHARACTERS_MAX // 2 + 1))
    assert len(transcript.messages()[-1].text) == MESSAGE_CHARACTERS_MAX


def test_a_kept_session_has_one_writer() -> None:
    """F30, F32: a writer that stays taken is seen at once."""
    kept = KeptSessions()
    transcript = Transcript()
    kept.keep("p", transcript)
    with pytest.raises(SessionHeldError):
        kept.hold("p")
    kept.release("p")
    assert kept.hold("p") is transcript
    with pytest.raises(SessionNotKeptError):
        kept.hold("unknown")
    assert kept.held == {"p"}


def test_kept_sessions_are_bounded_and_a_held_one_is_never_forgotten() -> None:
    """R12."""
    kept = KeptSessions()
    kept.keep("held", Transcript())
    for number in range(KEPT_MAX + 3):
        kept.keep(f"p{number}", Transcript())
        kept.release(f"p{number}")
    assert len(kept.ids) == KEPT_MAX
    assert kept.ids[0] == "held"
    assert kept.ids[-1] == f"p{KEPT_MAX + 2}"


def test_scripts_are_values() -> None:
    """Our choice: two scripts with the same steps are equal, and one is changed by replacing."""
    script = Script(turns=(Turn(steps=(Say(("x",)),)),))
    assert script == Script(turns=(Turn(steps=(Say(("x",)),)),))
    assert msgspec.structs.replace(script, fallback=()) != script
