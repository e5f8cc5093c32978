"""The router benchmark's command, briefly: it runs, counts every delta, and prints what its readers expect."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "router.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.process
def test_the_benchmark_prints_one_object_with_a_row_for_each_client_and_thread_count() -> None:
    """Required: rows with client, msg_per_s, cpu_us_per_msg. No speed is judged here."""
    ran = run("--json", "--messages", "2000", "--threads", "1,7", "--repeats", "1", "--clients", "tutti-side,bare")

    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    assert [(row["client"], row["threads"]) for row in document["rows"]] == [
        ("tutti-side", 1),
        ("bare", 1),
        ("tutti-side", 7),
        ("bare", 7),
    ]
    assert all(row["msg_per_s"] > 0 and row["cpu_us_per_msg"] > 0 for row in document["rows"])
    assert document["left_out"] == {}


@pytest.mark.process
def test_without_a_flag_it_prints_a_table() -> None:
    """Source: our choice."""
    ran = run("--messages", "500", "--threads", "1", "--repeats", "1", "--clients", "bare")

    assert ran.returncode == 0, ran.stderr
    assert "CPU µs/message" in ran.stdout


def test_an_unknown_client_is_named() -> None:
    """Source: our choice."""
    ran = run("--clients", "nobody")

    assert ran.returncode == 2
    assert "unknown clients: nobody" in ran.stderr
