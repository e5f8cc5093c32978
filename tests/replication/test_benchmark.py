"""The benchmark's command, briefly: it runs, and prints what its readers expect. No speed is judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "replication.py"


@pytest.mark.process
def test_the_benchmark_prints_one_object_with_its_rows() -> None:
    """Our choice: benchmarks/replication.py --json, rows with mutations_per_s."""
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", "--seconds", "0.05"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    document = json.loads(ran.stdout)
    assert document["batch_mutations"] == 500
    assert 400_000 < document["batch_bytes"] < 550_000
    names = [row["name"] for row in document["rows"]]
    assert names[:3] == ["decode+validate", "msgspec bare", "json bare"]
    assert all(row["mutations_per_s"] > 0 for row in document["rows"])
