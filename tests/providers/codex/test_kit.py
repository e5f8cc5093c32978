"""The conformance kit over the real Codex."""

import pathlib
from contextlib import AbstractAsyncContextManager

import pytest

from tutti_providers.codex.testing.kit_bed import CodexKitBed, open_codex_kit_bed
from tutti_side.testing.adapter_suite import AdapterSuite


@pytest.mark.codex
@pytest.mark.process
class TestCodex(AdapterSuite):
    """The binary does all of it."""

    kit_name = "codex"

    def open_bed(self, directory: pathlib.Path) -> AbstractAsyncContextManager[CodexKitBed]:
        """Make a bed."""
        return open_codex_kit_bed(directory)
