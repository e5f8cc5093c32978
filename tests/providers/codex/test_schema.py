"""Our structs against the schema that the installed binary prints."""

import builtins
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import pytest
from msgspec import inspect as mi

from tutti_providers.codex._launch import find_binary
from tutti_providers.codex.schema import SCHEMA_VERSION, _base, items, notifications, requests, server_requests

Json = dict[str, Any]


# the checker: one of our types against one JSON schema


def kinds(t: mi.Type) -> set[str]:
    """Return the JSON kinds that one of our types takes."""
    match t:
        case mi.RawType() | mi.CustomType(cls=builtins.object):
            return {"null", "boolean", "integer", "number", "string", "array", "object"}
        case mi.NoneType():
            return {"null"}
        case mi.BoolType():
            return {"boolean"}
        case mi.IntType():
            return {"integer"}
        case mi.FloatType():
            return {"integer", "number"}
        case mi.StrType() | mi.LiteralType():
            return {"string"}
        case mi.VarTupleType() | mi.ListType():
            return {"array"}
        case mi.DictType() | mi.StructType():
            return {"object"}
        case _:
            raise AssertionError(f"the checker doesn't know {t}")


def members(t: mi.Type) -> list[mi.Type]:
    return list(t.types) if isinstance(t, mi.UnionType) else [t]


def name_of(t: mi.Type) -> str:
    return t.cls.__name__ if isinstance(t, mi.StructType) else type(t).__name__


class Checker:
    """Walks a type and a schema side by side and collects what does not fit."""

    def __init__(self, definitions: Json) -> None:
        self.root = {"definitions": definitions}
        self.problems: list[str] = []

    def alternatives(self, schema: Any) -> Iterator[Json]:
        """Yield the flat schemas that `schema` is any of: no reference, no combination, one kind each."""
        if schema is False:
            return
        if schema is True:
            schema = {}
        if "$ref" in schema:
            target: Any = self.root
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            yield from self.alternatives(target)
            return
        for word in ("oneOf", "anyOf", "allOf"):
            if word in schema:
                rest = {k: v for k, v in schema.items() if k != word}
                for part in schema[word]:
                    for flat in self.alternatives(part):
                        yield from self.alternatives(self.merge(rest, flat))
                return
        kind = schema.get("type")
        every = ["null", "boolean", "integer", "number", "string", "array", "object"]
        for k in kind if isinstance(kind, list) else [kind] if kind else every:
            yield {**schema, "type": k}

    @staticmethod
    def merge(one: Json, two: Json) -> Json:
        merged = {**one, **two}
        merged["properties"] = one.get("properties", {}) | two.get("properties", {})
        merged["required"] = [*one.get("required", []), *two.get("required", [])]
        return merged

    def check(self, ours: Any, schema: Any, direction: Literal["read", "written"]) -> list[str]:
        """Return what is wrong when `ours` reads, or writes, what `schema` describes."""
        self.problems = []
        getattr(self, direction)(mi.type_info(ours), schema, name_of(mi.type_info(ours)))
        return self.problems

    def read(self, ours: mi.Type, schema: Any, path: str) -> None:
        """Whatever `schema` allows, `ours` takes; and every field of ours exists there."""
        alternatives = list(self.alternatives(schema))
        seen: dict[str, set[str]] = {}
        for flat in alternatives:
            takers = [m for m in members(ours) if flat["type"] in kinds(m)]
            if not takers:
                self.problems.append(f"{path}: {flat['type']} is allowed, but we don't take it")
            for taker in takers:
                if isinstance(taker, mi.VarTupleType):
                    self.read(taker.item_type, flat.get("items", True), f"{path}[]")
                elif isinstance(taker, mi.DictType):
                    self.read(taker.value_type, flat.get("additionalProperties", True), f"{path}{{}}")
                elif isinstance(taker, mi.StructType):
                    properties = flat.get("properties", {})
                    seen.setdefault(taker.cls.__name__, set()).update(properties)
                    for field in taker.fields:
                        where = f"{path}.{field.encode_name}"
                        if field.required and field.encode_name not in flat.get("required", []):
                            self.problems.append(f"{where}: may be absent, but we require it")
                        if field.encode_name in properties:
                            self.read(field.type, properties[field.encode_name], where)
        for member in members(ours):
            if isinstance(member, mi.StructType):
                for field in member.fields:
                    if field.encode_name not in seen.get(member.cls.__name__, set()):
                        self.problems.append(f"{path}.{field.encode_name}: there is no such field")

    def written(self, ours: mi.Type, schema: Any, path: str) -> None:
        """Whatever we write, `schema` allows; and we always write what it requires."""
        alternatives = list(self.alternatives(schema))
        for member in members(ours):
            if isinstance(member, mi.CustomType):
                continue
            takers = [a for a in alternatives if a["type"] in kinds(member) and self.tag_fits(member, a)]
            if not takers:
                self.problems.append(f"{path}: we write {name_of(member)}, which is not allowed")
            elif isinstance(member, mi.LiteralType):
                allowed = set(itertools.chain.from_iterable(a.get("enum", member.values) for a in takers))
                self.problems += [f"{path}: {v!r} is not allowed" for v in member.values if v not in allowed]
            elif isinstance(member, mi.VarTupleType):
                self.written(member.item_type, takers[0].get("items", True), f"{path}[]")
            elif isinstance(member, mi.StructType) and any("properties" in a for a in takers):
                self.written_struct(member, takers, path)

    def written_struct(self, ours: mi.StructType, takers: list[Json], path: str) -> None:
        properties: Json = {}
        for flat in takers:
            properties |= flat.get("properties", {})
        always = {ours.tag_field} if ours.tag_field else set()
        for field in ours.fields:
            where = f"{path}.{field.encode_name}"
            may_be_left_out = field.default is msgspec.UNSET or (
                ours.cls.__struct_config__.omit_defaults and not field.required
            )
            if not may_be_left_out:
                always.add(field.encode_name)
            if field.encode_name not in properties:
                self.problems.append(f"{where}: there is no such field")
                continue
            null_is_left_out = field.default is None and may_be_left_out
            written = [m for m in members(field.type) if not (null_is_left_out and isinstance(m, mi.NoneType))]
            self.written(mi.UnionType(tuple(written)), properties[field.encode_name], where)
        for flat in takers:
            missing = set(flat.get("required", [])) - always
            if missing and len(takers) == 1:
                self.problems.append(f"{path}: {sorted(missing)} is required, but we may leave it out")
        if len(takers) > 1 and all(set(flat.get("required", [])) - always for flat in takers):
            self.problems.append(f"{path}: in every form something is required that we may leave out")

    @staticmethod
    def tag_fits(member: mi.Type, flat: Json) -> bool:
        if isinstance(member, mi.StructType) and member.tag_field in flat.get("properties", {}):
            return member.tag in flat["properties"][member.tag_field].get("enum", [member.tag])
        return True


@pytest.fixture(scope="session")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """The schema that the installed binary prints, experimental methods included."""
    folder = tmp_path_factory.mktemp("codex-schema")
    home = tmp_path_factory.mktemp("codex-home")
    binary = find_binary(None, os.environ).path
    command = [str(binary), "app-server", "generate-json-schema", "--experimental", "--out"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CODEX_HOME": str(home)}
    subprocess.run([*command, str(folder)], env=env, check=True, capture_output=True, timeout=60)
    whole: Json = json.loads((folder / "codex_app_server_protocol.schemas.json").read_bytes())
    definitions: Json = whole["definitions"]
    return definitions


def params_of(protocol: Json, group: str) -> dict[str, Any]:
    """Return method → schema reference of its parameters, for one of the binary's groups of messages."""
    found: dict[str, Any] = {}
    for message in protocol[group]["oneOf"]:
        for method in message["properties"]["method"]["enum"]:
            found[method] = message["properties"].get("params", {})
    return found


def result_of(params: Json) -> Json:
    """Return the reference of the result that belongs to the parameters `params`."""
    return {"$ref": params["$ref"].removesuffix("Params") + "Response"}


# our structs against the binary's schema


@pytest.mark.codex
@pytest.mark.parametrize("params_type", requests.REQUESTS, ids=lambda t: t.METHOD)
def test_what_we_ask_is_allowed_and_complete_and_any_answer_to_it_can_be_read(
    protocol: Json, params_type: type[requests.Params]
) -> None:
    """Required: the structs are checked against the schema that the installed binary prints."""
    schema = params_of(protocol, "ClientRequest")[params_type.METHOD]
    assert Checker(protocol).check(params_type, schema, "written") == []
    assert Checker(protocol).check(requests.REQUESTS[params_type], result_of(schema), "read") == []


@pytest.mark.codex
@pytest.mark.parametrize("method", notifications.NOTIFICATIONS)
def test_every_notification_that_we_model_can_be_read(protocol: Json, method: str) -> None:
    """As above, the server's side."""
    schema = params_of(protocol, "ServerNotification")[method]
    assert Checker(protocol).check(notifications.NOTIFICATIONS[method], schema, "read") == []


@pytest.mark.codex
@pytest.mark.parametrize("method", server_requests.SERVER_REQUESTS)
def test_every_request_of_the_server_that_we_model_can_be_read_and_our_answer_is_allowed(
    protocol: Json, method: str
) -> None:
    """As above; what nobody could read, nobody could decline."""
    schema = params_of(protocol, "ServerRequest")[method]
    ours = server_requests.SERVER_REQUESTS[method]
    assert Checker(protocol).check(ours, schema, "read") == []
    if answer := server_requests.ANSWERS.get(ours):
        assert Checker(protocol).check(answer, result_of(schema), "written") == []


@pytest.mark.codex
@pytest.mark.parametrize("kind", items.ITEM_TYPES)
def test_every_kind_of_item_that_we_model_can_be_read(protocol: Json, kind: str) -> None:
    """As above, behind the hand-made tag."""
    checker = Checker(protocol)
    forms = list(checker.alternatives(protocol["v2"]["ThreadItem"]))
    schema = [f for f in forms if f["properties"]["type"]["enum"] == [kind]]
    assert len(schema) == 1
    assert checker.check(items.ITEM_TYPES[kind], schema[0], "read") == []


@pytest.mark.codex
def test_every_notification_that_we_take_for_a_delta_holds_what_the_head_reads(protocol: Json) -> None:
    """Our choice: these methods are never decoded a second time."""
    schemas = params_of(protocol, "ServerNotification")
    for method in notifications.DELTA_METHODS:
        flat = next(Checker(protocol).alternatives(schemas[method]))
        assert {"threadId", "turnId", "itemId", "delta"} <= set(flat["required"])


@pytest.mark.codex
def test_a_request_that_belongs_to_a_thread_is_routed_by_the_head(protocol: Json) -> None:
    """F29: no request may be taken for somebody else's because its thread stands in a field that nobody reads."""
    without_thread = {"account/chatgptAuthTokens/refresh", "attestation/generate"}
    for method, schema in params_of(protocol, "ServerRequest").items():
        flat = next(Checker(protocol).alternatives(schema))
        assert bool({"threadId", "conversationId"} & set(flat.get("required", []))) == (method not in without_thread)


@pytest.mark.codex
def test_the_binary_of_the_wheel_is_the_one_that_the_structs_were_written_from() -> None:
    """Our choice: who raises the wheel's version raises this one, after looking."""
    command = [str(find_binary(None, {}).path), "--version"]
    shown = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True, timeout=60)
    assert shown.stdout.decode().split()[-1] == SCHEMA_VERSION


# the checker itself can fail


def small(properties: Json, required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required}


class Small(_base.Read, frozen=True):
    """Read a name and a count."""

    some_name: str
    count: int | None = None


class Sent(_base.Written, frozen=True):
    """Write a name, and a word or nothing."""

    some_name: str
    word: Literal["a", "b"] | None = None


STRING, INTEGER = {"type": "string"}, {"type": ["integer", "null"]}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (small({"someName": STRING, "count": INTEGER}, ["someName"]), None),
        (small({"someName": STRING, "count": INTEGER}, []), "may be absent"),
        (small({"some_name": STRING, "count": INTEGER}, ["some_name"]), "no such field"),
        (small({"someName": STRING}, ["someName"]), "count: there is no such field"),
        (small({"someName": {"type": ["string", "null"]}, "count": INTEGER}, ["someName"]), "null is allowed"),
        (small({"someName": STRING, "count": {"type": "number"}}, ["someName"]), "number is allowed"),
        ({"anyOf": [small({"someName": STRING, "count": INTEGER}, ["someName"]), STRING]}, "string is allowed"),
    ],
)
def test_the_checker_finds_what_we_could_not_read(schema: Json, problem: str | None) -> None:
    """A test that can't fail is none."""
    problems = Checker({}).check(Small, schema, "read")
    assert problems == [] if problem is None else any(problem in p for p in problems)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (small({"someName": STRING, "word": {"enum": ["a", "b"], **STRING}}, ["someName"]), None),
        (small({"someName": STRING, "word": {"enum": ["a"], **STRING}}, ["someName"]), "'b' is not allowed"),
        (small({"someName": STRING, "word": INTEGER}, ["someName"]), "word: we write LiteralType"),
        (small({"word": STRING}, []), "someName: there is no such field"),
        (small({"someName": STRING, "word": STRING}, ["someName", "word"]), "may leave it out"),
        (small({"someName": STRING, "word": STRING, "x": STRING}, ["someName", "x"]), "may leave it out"),
    ],
)
def test_the_checker_finds_what_we_should_not_write(schema: Json, problem: str | None) -> None:
    """A test that can't fail is none."""
    problems = Checker({}).check(Sent, schema, "written")
    assert problems == [] if problem is None else any(problem in p for p in problems)
