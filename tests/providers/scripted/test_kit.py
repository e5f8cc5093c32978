"""The conformance kit over the scripted provider."""

import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tutti_providers.scripted.testing import ScriptedKitBed
from tutti_side.testing.adapter_suite import AdapterSuite


class TestScripted(AdapterSuite):
    """Nothing is excluded."""

    kit_name = "scripted"
    steers = True
    virtual_time = True

    @asynccontextmanager
    async def open_bed(self, directory: pathlib.Path) -> AsyncIterator[ScriptedKitBed]:
        """Make a bed."""
        yield ScriptedKitBed(directory)
