"""What the replication tests share: the conformance plugin, and batches as plain JSON that can be spoiled."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tutti_replication import encode_batch
from tutti_replication.conformance.pytest_plugin import pytest_generate_tests
from tutti_replication.mutation import Mutation

__all__ = ["pytest_generate_tests"]

Json = dict[str, Any]


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., Json]:
    """Return a function from mutations to their batch as JSON."""

    def batch_of(*mutations: Mutation) -> Json:
        document: Json = json.loads(encode_batch(mutations))
        return document

    return batch_of


@pytest.fixture(scope="session")
def spoil() -> Callable[..., bytes]:
    """Return a function that changes one value, by its path from the batch's root, and encodes the batch.

    Without a value the key is removed.
    """

    def spoil(document: Json, path: str, *value: Any) -> bytes:
        spoiled: Any = copy.deepcopy(document)
        *parents, name = [int(part) if part.isdigit() else part for part in path.split(".")]
        place = spoiled
        for parent in parents:
            place = place[parent]
        if value:
            place[name] = value[0]
        else:
            del place[name]
        return json.dumps(spoiled, ensure_ascii=False).encode()

    return spoil
