"""What `open_host` says to a call that is wrong."""

from typing import Any

import pytest

from tutti_providers.scripted import scripted
from tutti_side import open_host
from tutti_side.host.errors import ProviderChoiceError


@pytest.mark.parametrize(("given", "name"), [(scripted, "scripted"), (3, "int"), (None, "NoneType")])
async def test_what_is_no_provider_is_named_and_a_forgotten_call_is_seen(given: Any, name: str) -> None:
    """Our choice: ``open_host(codex)`` is the first thing that goes wrong for a newcomer."""
    with pytest.raises(ProviderChoiceError, match=rf"^{name} is no provider; give what a factory returns"):
        async with open_host(given):
            raise AssertionError("not reached")
