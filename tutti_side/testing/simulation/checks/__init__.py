"""The judges of a simulated run: each rule is held against the records of the run, and against nothing else.

`check_all` is the front door. A checker is a plain function over `Facts`, which sorts the list once; it yields what
breaks its rule. They know no runtime and no provider: standard library, msgspec and `records` are all they import, so
that a fault of the product cannot be a fault of its judge. What a rule has to let pass (an answer that is under way
when its connection ends, a call that was cut off, the host's stop) is said at the rule, with each time as a constant.
"""

from collections.abc import Callable, Iterator, Sequence

from tutti_side.testing.simulation.checks._facts import Context, Facts, Violation
from tutti_side.testing.simulation.checks.bounds import no_count_over_its_bound
from tutti_side.testing.simulation.checks.delivery import (
    agents_are_heard_from_their_start,
    subscriptions_end,
    turns_leave_nothing_asked,
    what_waited_was_seen,
    who_asked_for_all_sees_the_first,
)
from tutti_side.testing.simulation.checks.durable import nothing_of_a_side_is_written
from tutti_side.testing.simulation.checks.ends import (
    all_is_free_in_the_calm,
    each_call_ends,
    lost_calls_end_soon,
    nothing_outlives_its_host,
)
from tutti_side.testing.simulation.checks.giving_up import (
    given_up_turns_do_not_run_on,
    joined_opens_outlive_each_other,
    turns_of_cut_calls_are_given_up,
)
from tutti_side.testing.simulation.checks.interactions import one_answer_for_each, sides_answer_for_themselves
from tutti_side.testing.simulation.checks.lifecycle import (
    nothing_is_left,
    one_branch_for_each_identity,
    over_is_over,
    source_close_and_open_never_interleave,
)
from tutti_side.testing.simulation.checks.releases import (
    deleted_sources_take_their_sides,
    turns_are_interrupted_before_their_release,
    what_is_over_is_released,
    what_waits_is_declined_before_its_release,
)
from tutti_side.testing.simulation.checks.routing import events_reach_their_owner
from tutti_side.testing.simulation.checks.sequence import (
    numbers_have_no_gap,
    texts_are_what_was_said,
    turns_end_once_and_as_the_provider_said,
)
from tutti_side.testing.simulation.checks.wire import (
    only_the_attested_is_asked,
    parents_are_left_alone,
    sides_are_restricted,
    sides_know_where_they_begin,
    steers_reach_their_own_turn,
    the_reader_never_waits,
)
from tutti_side.testing.simulation.records import Record

__all__ = ["CHECKS", "Context", "Facts", "Violation", "check_all"]

CHECKS: tuple[Callable[[Facts], Iterator[Violation]], ...] = (
    events_reach_their_owner,
    nothing_of_a_side_is_written,
    numbers_have_no_gap,
    texts_are_what_was_said,
    what_waited_was_seen,
    who_asked_for_all_sees_the_first,
    agents_are_heard_from_their_start,
    turns_end_once_and_as_the_provider_said,
    one_branch_for_each_identity,
    source_close_and_open_never_interleave,
    nothing_is_left,
    turns_are_interrupted_before_their_release,
    what_is_over_is_released,
    parents_are_left_alone,
    steers_reach_their_own_turn,
    over_is_over,
    deleted_sources_take_their_sides,
    each_call_ends,
    lost_calls_end_soon,
    subscriptions_end,
    the_reader_never_waits,
    one_answer_for_each,
    what_waits_is_declined_before_its_release,
    turns_leave_nothing_asked,
    no_count_over_its_bound,
    nothing_outlives_its_host,
    all_is_free_in_the_calm,
    given_up_turns_do_not_run_on,
    turns_of_cut_calls_are_given_up,
    joined_opens_outlive_each_other,
    only_the_attested_is_asked,
    sides_know_where_they_begin,
    sides_are_restricted,
    sides_answer_for_themselves,
)
"""All of them, in the order of the rules R1 to R15 and R19."""


def check_all(records: Sequence[Record], context: Context) -> list[Violation]:
    """Judge one run.

    Args:
      records: all of it, in order.
      context: what the driver made up.

    Returns:
      what broke a rule, in the order in which it happened; empty when all hold.
    """
    facts = Facts(records, context)
    found = [violation for check in CHECKS for violation in check(facts)]
    return sorted(found, key=lambda violation: violation.index)
