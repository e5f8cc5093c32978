"""A diagnosis, cut after the k-th step of any task: whatever it started to ask is ended."""

import os
from pathlib import Path

import pytest

from tutti_providers.codex import codex
from tutti_side.testing.cuts import Cut, cut_at_every_step
from tutti_side.testing.processes import marked_processes

pytestmark = pytest.mark.process

CUTS = {"diagnose": ("CodexProvider.diagnose",)}

BOUND_S = 60.0


async def test_a_diagnosis_cut_at_any_step_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    """R14, F31: a program that ends without an answer, so that its start, its silence and its end are all cut."""
    binary = tmp_path / "codex"
    binary.write_text("#!/bin/sh\nread line\nexit 3\n")
    binary.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    descriptors = len(os.listdir("/proc/self/fd"))

    async def once(cut: Cut) -> None:
        with cut.cancelling():
            assert not (await codex(binary, environ=environ).diagnose()).supported
        assert marked_processes(f"HOME={tmp_path}") == []
        assert len(os.listdir("/proc/self/fd")) <= descriptors + EPOLL

    report = await cut_at_every_step(once, run_s=BOUND_S)

    assert report.inside >= set(CUTS["diagnose"])


EPOLL = 3
"""Trio's own, opened in the first run."""
