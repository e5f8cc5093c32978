"""The five facts."""

import itertools

from tutti_side.contract import SideCapabilities

FACTS = ("supported", "active_source_turn", "ephemeral", "hide_inherited_turns", "model_boundary_injected")


def test_only_all_five_facts_together_offer_a_side() -> None:
    """R15: what is not attested is absent, and one missing fact is enough to refuse."""
    for values in itertools.product((False, True), repeat=len(FACTS)):
        capabilities = SideCapabilities(**dict(zip(FACTS, values, strict=True)))  # type: ignore[arg-type]
        assert bool(capabilities) is all(values)
        assert capabilities.missing() == tuple(f for f, v in zip(FACTS, values, strict=True) if not v)


def test_nothing_is_attested_by_default() -> None:
    """R15: fail closed."""
    assert SideCapabilities().missing() == FACTS
    assert SideCapabilities.unsupported("no").reason == "no"
