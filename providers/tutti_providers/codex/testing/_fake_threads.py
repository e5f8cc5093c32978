"""What the fake app-server knows: its set-up, and the state of each thread and turn."""

from collections import deque
from typing import Any

import msgspec

from ._fake_shapes import default_sandbox, version_tuple
from .app_server_faults import Fault
from .model_script import ModelScript, Step

__all__ = ["FakeSetup", "FakeThread", "FakeTool", "FakeTurn", "StoredThread"]

INJECTED_ITEMS_MAX = 1024
"""Injected items remembered for each thread; older ones are forgotten."""

ENDED_TURNS_MAX = 64
"""Ended turns listed of each thread; older ones are forgotten."""


class StoredThread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread on disk, from an earlier process."""

    thread_id: str
    preview: str = "hello"
    archived: bool = False
    responses: int = 1
    """How many model responses its token usage counts."""


class FakeSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a fake app-server depends on: equal set-ups and inputs give equal outputs."""

    script: ModelScript = ModelScript(answers=())
    faults: tuple[Fault, ...] = ()
    stored: tuple[StoredThread, ...] = ()
    version: str = "0.163.0"
    user_agent: str | None = None
    """The whole `userAgent`, instead of the one made from client name and version."""
    codex_home: str = "/home/user/.codex"
    cwd: str = "/home/user/project"
    model: str = "mock-model"
    model_provider: str = "mock"
    approval_policy: str = "on-request"
    sandbox: str = "read-only"
    tool_servers: tuple[str, ...] = ()
    """Names of MCP servers; each makes start-up notifications for every thread."""
    unload_delay_s: float | None = None
    """How long after the last subscriber left a thread is unloaded; None is never (0.163 as far as it was watched)."""
    has_twin_ids: bool = False
    """Whether its requests follow each other in pairs whose ids differ by their type only: 0 and ``"0"``, and so on."""
    user_input_everywhere: bool = False
    """The feature flag that offers `request_user_input` outside plan mode."""
    seed: int = 0
    jitter: bool = False
    """Draw the order of a fork's messages and the length of delays from the seed."""

    @property
    def is_new(self) -> bool:
        """Does it behave as 0.171 where that differs from 0.163?"""
        return version_tuple(self.version) >= (0, 171)


class FakeTool(msgspec.Struct, kw_only=True):
    """A tool call on its way."""

    item: dict[str, Any] | None
    """None when the call has no item (`request_user_input`)."""
    turn_id: str
    request_id: int | str | None = None
    command: str | None = None
    kind: str = ""
    over: bool = False


class FakeTurn:
    """A turn that runs."""

    def __init__(self, turn_id: str, text: str, number: int) -> None:
        self.id = turn_id
        self.text = text
        self.number = number
        self.rounds = 0
        self.steps: deque[Step] = deque()
        self.tokens: deque[str] = deque()
        self.token_delay_s = 0.0
        self.message_id: str | None = None
        self.message_text: list[str] = []
        self.last_message: dict[str, Any] | None = None
        self.tools: list[FakeTool] = []
        self.called = False
        self.streaming = False
        self.steered: list[list[Any]] = []
        self.sampling = 0
        self.diff = ""
        self.fails_after: int | None = None
        self.over = False


class FakeThread:
    """A loaded thread."""

    def __init__(self, thread_id: str, setup: FakeSetup, params: dict[str, Any]) -> None:
        self.id = thread_id
        self.cwd: str = params.get("cwd") or setup.cwd
        self.model: str = params.get("model") or setup.model
        self.model_provider: str = params.get("modelProvider") or setup.model_provider
        self.approval_policy: Any = params.get("approvalPolicy") or setup.approval_policy
        self.approvals_reviewer: str = params.get("approvalsReviewer") or "user"
        self.sandbox: dict[str, Any] = default_sandbox(params.get("sandbox") or setup.sandbox) or {}
        self.ephemeral: bool = bool(params.get("ephemeral"))
        self.effort: str | None = None
        self.service_tier: str | None = params.get("serviceTier")
        self.collaboration: dict[str, Any] | None = None
        self.forked_from: str | None = None
        self.preview = ""
        self.subscribed = True
        self.responses = 0
        self.turn: FakeTurn | None = None
        self.turn_count = 0
        self.last_turn_id: str | None = None
        self.ended_turns: deque[dict[str, Any]] = deque(maxlen=ENDED_TURNS_MAX)
        self.first_unread: str | None = None
        self.failed = False
        self.background: list[FakeTool] = []
        self.allowed_commands: set[str] = set()
        self.surplus_interrupts: list[Any] = []
        self.injected: deque[dict[str, Any]] = deque(maxlen=INJECTED_ITEMS_MAX)
        self.unload_delay_s = setup.unload_delay_s
        self.unload_attempt = 0
        self._setup = setup

    @property
    def in_plan_mode(self) -> bool:
        """Does the thread's collaboration mode offer questions?"""
        return self.collaboration is not None and self.collaboration.get("mode") == "plan"

    def flags(self) -> list[str]:
        """What the thread waits for."""
        waiting = {tool.kind for tool in (self.turn.tools if self.turn else []) if tool.request_id is not None}
        flags = ["waitingOnApproval"] if waiting & {"command", "patch", "elicitation"} else []
        return [*flags, *(["waitingOnUserInput"] if "question" in waiting else [])]

    def status(self) -> dict[str, Any]:
        """The thread's status."""
        if self.turn is not None:
            return {"type": "active", "activeFlags": self.flags()}
        return {"type": "systemError" if self.failed else "idle"}

    def shape(self, *, full: bool = True) -> dict[str, Any]:
        """The thread object; `thread/read` of a Side leaves its lineage and preview out (``full`` false)."""
        setup = self._setup
        seconds = 1_796_000_000
        return {
            "id": self.id,
            "environments": self._environments(),
            "extra": None,
            "sessionId": self.id,
            "forkedFromId": self.forked_from if full else None,
            **({"attachedToThreadId": None} if setup.is_new else {}),
            "parentThreadId": None,
            "preview": self.preview if full else "",
            "ephemeral": self.ephemeral,
            "section": None,
            "sectionEnteredAt": None,
            "projectId": None,
            "historyMode": "paginated",
            "modelProvider": self.model_provider,
            "model": self.model,
            "reasoningEffort": self.effort,
            "createdAt": seconds,
            "updatedAt": seconds,
            "recencyAt": seconds,
            "status": self.status(),
            "path": None if self.ephemeral else f"{setup.codex_home}/sessions/2026/11/30/rollout-{self.id}.jsonl",
            "cwd": self.cwd,
            "cliVersion": setup.version,
            "originator": "fake",
            "source": "vscode",
            "canAcceptDirectInput": True,
            "threadSource": None,
            "agentNickname": None,
            "agentRole": None,
            "gitInfo": None,
            "name": None,
            "daybreakEnabled": None,
            "turns": [],
        }

    def read_state(self) -> dict[str, Any] | None:
        """Where the user stopped reading, which is before the first turn that ended; None before there is one."""
        if self.first_unread is None:
            return None
        return {"firstUnread": {"type": "turn", "turnId": self.first_unread}, "revision": f"after-{self.turn_count}"}

    def opened(self) -> dict[str, Any]:
        """The result of start, fork and resume."""
        return {
            "thread": self.shape(),
            "model": self.model,
            "modelProvider": self.model_provider,
            "serviceTier": self.service_tier,
            "disabledPluginIds": [],
            "cwd": self.cwd,
            "runtimeWorkspaceRoots": [self.cwd],
            "instructionSources": [],
            "approvalPolicy": self.approval_policy,
            "approvalsReviewer": self.approvals_reviewer,
            "sandbox": self.sandbox,
            "activePermissionProfile": None,
            "reasoningEffort": self.effort,
            "multiAgentMode": "explicitRequestOnly",
        }

    def settings(self) -> dict[str, Any]:
        """The snapshot of `thread/settings/updated`."""
        plain = {"model": self.model, "reasoning_effort": self.effort, "developer_instructions": None}
        return {
            "disabledPluginIds": [],
            "cwd": self.cwd,
            "approvalPolicy": self.approval_policy,
            "approvalsReviewer": self.approvals_reviewer,
            "sandboxPolicy": self.sandbox,
            "activePermissionProfile": None,
            "model": self.model,
            "modelProvider": self.model_provider,
            "serviceTier": self.service_tier,
            "effort": self.effort,
            "summary": None,
            **({"environments": self._environments()} if self._setup.is_new else {}),
            "collaborationMode": self.collaboration or {"mode": "default", "settings": plain},
            "multiAgentMode": "explicitRequestOnly",
            "personality": None,
        }

    def _environments(self) -> list[dict[str, Any]]:
        return [{"environmentId": "local", "cwd": self.cwd, "runtimeWorkspaceRoots": [self.cwd]}]

    @property
    def can_be_tightened(self) -> bool:
        """Is there a stricter setting left?"""
        return self.sandbox.get("type") != "readOnly" or self.approval_policy != "never"

    def tighten(self) -> None:
        """Take over the next stricter setting, if there is one."""
        stricter = {"dangerFullAccess": "workspace-write", "workspaceWrite": "read-only"}.get(str(self.sandbox["type"]))
        if stricter is None:
            self.approval_policy = "never"
        else:
            self.sandbox = default_sandbox(stricter) or {}

    def change_settings(self, params: dict[str, Any]) -> bool:
        """Take over what a `turn/start` sets; say whether anything changed."""
        before = self.settings()
        self.cwd = params.get("cwd") or self.cwd
        self.model = params.get("model") or self.model
        self.approval_policy = params.get("approvalPolicy") or self.approval_policy
        self.approvals_reviewer = params.get("approvalsReviewer") or self.approvals_reviewer
        self.sandbox = params.get("sandboxPolicy") or self.sandbox
        self.effort = params.get("effort") or self.effort
        self.service_tier = params.get("serviceTier") or self.service_tier
        mode = params.get("collaborationMode")
        if mode is not None:
            self.collaboration = _with_instructions(mode)
            self.model = mode["settings"].get("model") or self.model
            self.effort = mode["settings"].get("reasoning_effort") or self.effort
        return self.settings() != before


def _with_instructions(mode: dict[str, Any]) -> dict[str, Any]:
    """The mode with its built-in instructions where the client gave none."""
    settings = dict(mode["settings"])
    if settings.get("developer_instructions") is None and mode["mode"] == "plan":
        settings["developer_instructions"] = "(the built-in text of the mode)"
    return {**mode, "settings": settings}
