"""Migrations build what the schema says, once, whoever opens first, also after a crash in the middle."""

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, inspect, select, text

from tutti_sinks import SinkError, SinkVersionError, _migrations
from tutti_sinks._engine import open_engine, our_errors
from tutti_sinks._migrations import STEPS, Step, migrate
from tutti_sinks._schema import APPLIED, METADATA, STATE

ADDED = Step(name="m900_added", tables={"tutti_added": ("id INTEGER NOT NULL PRIMARY KEY", "words {octets}")})


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine over an empty database."""
    engine = open_engine(database_url)
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS tutti_added"))
    engine.dispose()


def applied(engine: Engine) -> list[str]:
    """Return the recorded names in order."""
    with engine.begin() as connection:
        return sorted(connection.scalars(select(APPLIED.c.name)))


def test_the_migrated_tables_are_those_of_the_schema(engine: Engine) -> None:
    """Frozen DDL and Core tables are two texts; here they are held together. Source: our choice."""
    migrate(engine, 1)
    found = inspect(engine)

    assert set(found.get_table_names()) == set(METADATA.tables)
    for name, table in METADATA.tables.items():
        columns = {column["name"]: column for column in found.get_columns(name)}
        assert list(columns) == [column.name for column in table.columns]
        nullable = {column.name for column in table.columns if column.nullable}
        assert {column for column, facts in columns.items() if facts["nullable"]} == nullable
        assert found.get_pk_constraint(name)["constrained_columns"] == [column.name for column in table.primary_key]


def test_the_reads_have_their_indexes(engine: Engine) -> None:
    """Pages of a parent and changes since a cursor never scan the table. Source: our choice."""
    migrate(engine, 1)
    found = inspect(engine)
    indexes = {
        index["name"]: index["column_names"]
        for table in ("tutti_entity", "tutti_observed")
        for index in found.get_indexes(table)
    }

    assert indexes == {
        "tutti_entity_children": ["parent_key", "entity_type", "sort_time_ms", "sort_rank"],
        "tutti_entity_changes": ["at_cursor"],
        "tutti_observed_changes": ["at_cursor"],
    }


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    """The epoch of the first opener stays recorded. RW-equal-epoch."""
    migrate(engine, 3)
    migrate(engine, 4)

    assert applied(engine) == [step.name for step in STEPS]
    with engine.begin() as connection:
        assert connection.execute(select(STATE)).all() == [(1, 3, 0)]


def test_a_new_step_runs_on_an_older_database(engine: Engine) -> None:
    """And the older steps don't run again. Source: our choice."""
    migrate(engine, 1)
    migrate(engine, 1, (*STEPS, ADDED))

    assert applied(engine) == [*(step.name for step in STEPS), "m900_added"]
    assert inspect(engine).has_table("tutti_added")


def test_a_database_of_a_newer_release_is_refused_untouched(engine: Engine) -> None:
    """Its tables may mean something else. Source: our choice."""
    migrate(engine, 1, (*STEPS, ADDED))

    with pytest.raises(SinkVersionError, match="m900_added") as refused:
        migrate(engine, 1)

    assert refused.value.unknown == ("m900_added",)


def test_a_step_that_broke_in_the_middle_is_run_again(engine: Engine) -> None:
    """MySQL commits around DDL, so a crash there leaves half a step behind. Source: our choice."""
    broken = Step(
        name="m900_added",
        tables={**ADDED.tables, "tutti_broken": ("id NO SUCH TYPE, WHATEVER, (",)},
    )
    with pytest.raises(SinkError), our_errors():
        migrate(engine, 1, (*STEPS, broken))
    assert applied(engine) == [step.name for step in STEPS]

    migrate(engine, 1, (*STEPS, ADDED))

    assert applied(engine)[-1] == "m900_added"


def test_openers_at_the_same_time_migrate_once(database_url: str) -> None:
    """Several processes of one service start together. Source: our choice."""
    errors: list[Exception] = []
    ready = threading.Barrier(4)

    def open_one() -> None:
        engine = open_engine(database_url)
        try:
            ready.wait(30)
            migrate(engine, 1)
        except Exception as error:
            errors.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=open_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert errors == []
    engine = open_engine(database_url)
    assert applied(engine) == [step.name for step in STEPS]
    engine.dispose()


def test_names_of_steps_are_unique_and_in_order() -> None:
    """A name is what a database remembers of a step. Source: our choice."""
    names = [step.name for step in _migrations.STEPS]

    assert names == sorted(set(names))
    assert all(name[0] == "m" and name[1:4].isdigit() and name[4] == "_" for name in names)
