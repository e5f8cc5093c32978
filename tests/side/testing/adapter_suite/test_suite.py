"""What an author says of his adapter: what it can't do, and that it never asks."""

import pathlib

import pytest

from tutti_side.testing.adapter_suite import AdapterSuite, ExclusionError

CASES = list(AdapterSuite.cases())
ASKING = "test_an_answer_is_taken_once"


def make_suite(excluded: dict[str, str], *, interactive: bool = True, steers: bool = False) -> type[AdapterSuite]:
    """Make a suite as an author writes one."""
    return type("TestMine", (AdapterSuite,), {"excluded": excluded, "interactive": interactive, "steers": steers})


def test_an_excluded_case_is_no_method_any_more_and_the_others_are() -> None:
    """Our choice: what is excluded is not collected, so that no skip hides it; the kit's own class keeps it."""
    suite = make_suite({CASES[0]: "it can't"})
    assert getattr(suite, CASES[0]) is None
    assert all(callable(getattr(suite, name)) for name in CASES[1:])
    assert callable(getattr(AdapterSuite, CASES[0]))
    assert list(suite.cases()) == CASES


@pytest.mark.parametrize(
    ("excluded", "problem"),
    [
        ({"test_of_nothing": "it can't"}, "which is no case"),
        ({CASES[0]: " "}, "without a reason"),
        (dict.fromkeys(CASES[: len(CASES) // 10 + 1], "it can't"), "at most a tenth"),
    ],
    ids=["an unknown case", "no reason", "too many"],
)
def test_what_cannot_be_excluded_is_refused_where_the_class_is_made(excluded: dict[str, str], problem: str) -> None:
    """Our choice: a kit of which anything could be left out would say nothing."""
    with pytest.raises(ExclusionError, match=problem):
        make_suite(excluded)


def test_a_tenth_may_be_excluded() -> None:
    """Our choice: no provider can do everything."""
    make_suite(dict.fromkeys(CASES[: len(CASES) // 10], "it can't"))


def test_a_provider_that_never_asks_has_a_kit_without_the_cases_about_that() -> None:
    """Contract: `InteractiveAdapter` is an adapter's choice; those cases are then neither collected nor excluded."""
    suite = make_suite({}, interactive=False)
    assert getattr(suite, ASKING) is None
    assert ASKING not in suite.cases()
    assert {*CASES} - {*suite.cases()} == {name for name in CASES if getattr(suite, name) is None}
    with pytest.raises(ExclusionError, match="which is no case"):
        type("TestMine", (suite,), {"excluded": {ASKING: "it never asks"}})


def test_the_cases_about_more_input_are_part_of_the_kit_when_the_suite_says_so() -> None:
    """Contract: `SteeringAdapter` is an addition that few have."""
    steering = {*make_suite({}, steers=True).cases()} - {*CASES}
    assert steering
    assert all(getattr(make_suite({}), name) is None for name in steering)


def test_every_case_is_a_sentence_with_its_source() -> None:
    """Our choice: the id of a case is what an author reads first."""
    assert len(CASES) >= 50
    assert [name for name, source in AdapterSuite.cases().items() if not source.strip().endswith(".")] == []


def test_a_suite_without_a_bed_says_so(tmp_path: pathlib.Path) -> None:
    """Our choice."""
    with pytest.raises(NotImplementedError, match="TestMine needs an open_bed"):
        getattr(make_suite({})(), CASES[0])(tmp_path)
