"""What importing the contract costs its user: no driver, no daemon, no event loop, no socket."""

import subprocess
import sys

import pytest

PROBE = """
import sys
import msgspec
before = set(sys.modules)
import {module}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""

UNWANTED = {
    *("sqlite3", "_sqlite3", "dbm", "sqlalchemy", "pymysql", "MySQLdb", "psycopg", "psycopg2", "asyncpg"),
    *("trio", "anyio", "asyncio", "selectors"),
    *("socket", "_socket", "ssl", "http", "urllib3", "httpx", "h11", "wsproto", "trio_websocket"),
    *("tutti_sinks", "tutti_side", "tutti_providers"),
}
"""Database drivers, the standard library's among them; event loops; transports; the rest of us."""


def loaded_by(module: str) -> set[str]:
    """The top-level modules that importing this one loads, in a process of its own."""
    code = PROBE.format(module=module)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.split())


@pytest.mark.process
@pytest.mark.parametrize("module", ["tutti_replication", "tutti_replication.conformance"])
def test_importing_the_contract_loads_no_driver_no_loop_and_no_transport(module: str) -> None:
    """R18, AR-import, AR-owns-nothing: the driver and the sockets of the standard library count as well."""
    loaded = loaded_by(module)
    assert "tutti_replication" in loaded
    assert loaded & UNWANTED == set()


@pytest.mark.process
def test_the_probe_sees_a_driver_and_a_loop() -> None:
    """Our choice: a test that cannot fail is a defect."""
    assert {"sqlite3", "_sqlite3"} <= loaded_by("sqlite3")
    assert {"trio", "socket"} <= loaded_by("trio")
