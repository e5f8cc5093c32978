"""What a user puts into a turn, as a real Codex shows it to its model; in a Side as in a session."""

import base64
from typing import Any

import pytest

from tutti_providers.codex.testing import ModelScript
from tutti_side.contract import ImageContent, InvalidContentError, MentionContent, SkillContent, TextContent

pytestmark = [pytest.mark.codex, pytest.mark.process]

Lab = Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""One pixel."""
DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def shown(bench: Any) -> list[Any]:
    """The parts of what the model was last sent by its user, those that Codex adds included."""
    items = bench.model.requests[-1].items
    last = max(n for n, item in enumerate(items) if item.get("role") == "assistant")
    users = [item["content"] for item in items[last + 1 :] if item.get("role") == "user"]
    return [part for content in users for part in content]


async def test_every_kind_of_content_reaches_the_model_from_a_session_and_from_a_side(lab: Lab) -> None:
    """Required: an image is sent as itself, a mention as its link, a skill as what its file says."""
    async with lab.bench(ModelScript(answers=()), model="gpt-5.5") as bench:
        picture = bench.workspace / "dot.png"
        picture.write_bytes(PNG)
        skill = bench.codex_home / "skills" / "demo" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: demo\ndescription: a demo\n---\nDo the demo.\n", "utf-8")
        content = [
            TextContent("look"),
            ImageContent(path=str(picture)),
            ImageContent(url=DATA_URL),
            MentionContent("dot.png", str(picture)),
            SkillContent("demo", str(skill)),
        ]
        async with bench.host() as host:
            session = await host.start_session(cwd=bench.workspace)
            await session.ask("hello")
            async with session.side() as side:
                for handle in (session, side):
                    await handle.ask(content)
                    parts = shown(bench)
                    images = [part for part in parts if part["type"] == "input_image"]
                    texts = [part["text"] for part in parts if part["type"] == "input_text"]
                    assert [image["image_url"] for image in images] == [DATA_URL, DATA_URL]
                    assert "look" in texts
                    assert f"[dot.png]({picture})" in texts
                    assert any("Do the demo." in text for text in texts)
            sent = [frame["params"]["input"] for frame in bench.wire.requests("turn/start")[1:]]
            assert sent[0] == sent[1]


async def test_an_image_that_is_not_there_is_told_to_the_model_and_the_turn_goes_on(lab: Lab) -> None:
    """Measured on 0.163: whether a file can be read is the server's to say, and it says it to the model."""
    async with lab.bench(ModelScript(answers=()), model="gpt-5.5") as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        await session.ask("hello")
        assert (await session.ask([ImageContent(path=str(bench.workspace / "none.png"))])).text == "Done."
        assert any("could not read the local image" in part["text"] for part in shown(bench))


async def test_an_address_on_the_network_is_refused_before_anything_is_sent(lab: Lab) -> None:
    """Measured on 0.163: it refuses remote images itself, after the turn was begun; here nothing is written at all."""
    async with lab.bench(ModelScript(answers=()), model="gpt-5.5") as bench, bench.host() as host:
        session = await host.start_session(cwd=bench.workspace)
        before = len(bench.wire.sent)
        with pytest.raises(InvalidContentError, match=r"content\[1\].url"):
            await session.ask([TextContent("look"), ImageContent(url=f"{bench.model.base_url}/x.png")])
        assert len(bench.wire.sent) == before
        assert bench.model.requests == []
