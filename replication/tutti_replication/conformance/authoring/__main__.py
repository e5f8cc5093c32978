"""``python -m tutti_replication.conformance.authoring``: write the fixtures into this package's folder."""

import sys
from pathlib import Path

from .write import write

if __name__ == "__main__":
    count = write(Path(__file__).parent.parent / "fixtures")
    sys.stdout.write(f"{count} fixtures written\n")
