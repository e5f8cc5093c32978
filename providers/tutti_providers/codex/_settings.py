"""A thread's settings, and what a Side of it must carry so that it is its source's equal and never looser. Pure.

A fork inherits only some of its source's settings from the server (working directory, approval policy, reviewer);
model, provider, effort and sandbox would fall back to the configuration. So everything is said, and the answer is held
against what was asked for. The fork's own sandbox is one of three words that take their details from the
configuration; the full policy travels with each turn, and the fork is made read-only, which no source undercuts.
"""

from collections.abc import Callable, Mapping

import msgspec

from tutti_providers.codex._input import input_of
from tutti_providers.codex.schema.notifications import ThreadSettings
from tutti_providers.codex.schema.requests import (
    ApprovalPolicy,
    CollaborationMode,
    CollaborationSettings,
    ForkParams,
    OpenedThread,
    ResumedThread,
    ResumeParams,
    SandboxMode,
    SandboxPolicy,
    StartParams,
    TurnStartParams,
)
from tutti_side.contract import Content, InvalidSettingsError

__all__ = [
    "CodexSettings",
    "SourceSettings",
    "check_fork",
    "check_resumed",
    "check_started",
    "fork_params",
    "resume_params",
    "settings_of",
    "side_turn_params",
    "start_params",
    "turn_params",
]

REVIEWER = "user"
"""Who approves in a Side. The server would pass on a source's ``auto_review``, with which a model approves."""

SANDBOX_TYPES: Mapping[str, str] = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}
"""What a sandbox is called when it is asked for, and when it is told."""

PLAN_INSTRUCTIONS = """\
You are in plan mode. Look around and think, but change nothing: no edits, and no commands with side effects. Where a \
choice is the user's, ask with `request_user_input`. End with the plan that you propose."""
"""Said in plan mode in front of instructions of ours, since those replace what the server itself says of a mode."""


class CodexSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a canonical session; what is None is left to the user's configuration."""

    model: str | None = None
    model_provider: str | None = None
    effort: str | None = None
    approval_policy: ApprovalPolicy | None = None
    sandbox: SandboxMode | None = None
    """``read-only``, ``workspace-write`` or ``danger-full-access``."""
    config: dict[str, object] | None = None
    """Configuration of this session alone, over the user's file."""


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread runs with now: its opening answer, then each ``thread/settings/updated``."""

    cwd: str
    model: str
    model_provider: str
    approval_policy: ApprovalPolicy
    sandbox_policy: SandboxPolicy
    service_tier: str | None
    effort: str | None
    mode: str

    @classmethod
    def of_opened(cls, opened: OpenedThread) -> "SourceSettings":
        """Take them from the answer that opened the thread."""
        mode = opened.collaboration_mode if isinstance(opened, ResumedThread) else None
        return cls(
            cwd=opened.cwd,
            model=opened.model,
            model_provider=opened.model_provider,
            approval_policy=opened.approval_policy,
            sandbox_policy=opened.sandbox,
            service_tier=opened.service_tier,
            effort=opened.reasoning_effort,
            mode="default" if mode is None else mode.mode,
        )

    @classmethod
    def of_update(cls, updated: ThreadSettings) -> "SourceSettings":
        """Take them from an update, which is whole."""
        mode = updated.collaboration_mode
        return cls(
            cwd=updated.cwd,
            model=updated.model,
            model_provider=updated.model_provider,
            approval_policy=updated.approval_policy,
            sandbox_policy=updated.sandbox_policy,
            service_tier=updated.service_tier,
            effort=updated.effort,
            mode="default" if mode is None else mode.mode,
        )


def settings_of(given: object) -> CodexSettings:
    """Return a session's settings as they were given; None is all defaults.

    Raises:
      InvalidSettingsError: they are another provider's.
    """
    if given is None:
        return CodexSettings()
    if not isinstance(given, CodexSettings):
        raise InvalidSettingsError("settings", f"is a {type(given).__name__}; Codex takes CodexSettings")
    return given


def _config_of(settings: CodexSettings) -> dict[str, object] | None:
    config = dict(settings.config or {})
    if settings.effort is not None:
        config["model_reasoning_effort"] = settings.effort
    return config or None


def start_params(cwd: str, settings: CodexSettings) -> StartParams:
    """Return the request that starts a session."""
    return StartParams(
        cwd=cwd,
        model=settings.model,
        model_provider=settings.model_provider,
        approval_policy=settings.approval_policy,
        sandbox=settings.sandbox,
        config=_config_of(settings),
    )


def resume_params(thread_id: str, cwd: str, settings: CodexSettings) -> ResumeParams:
    """Return the request that loads a session; what the settings leave open is as it was, or the configuration's."""
    return ResumeParams(
        thread_id=thread_id,
        cwd=cwd,
        exclude_turns=True,
        model=settings.model,
        model_provider=settings.model_provider,
        approval_policy=settings.approval_policy,
        sandbox=settings.sandbox,
        config=_config_of(settings),
    )


def fork_params(source_id: str, source: SourceSettings, instructions: str) -> ForkParams:
    """Return the fork that makes a Side of a source.

    `instructions` reach the model only after a compaction of the Side; they are injected as an item as well.
    """
    return ForkParams(
        thread_id=source_id,
        ephemeral=True,
        exclude_turns=True,
        developer_instructions=instructions,
        model=source.model,
        model_provider=source.model_provider,
        service_tier=source.service_tier,
        sandbox="read-only",
        approval_policy=source.approval_policy,
        approvals_reviewer=REVIEWER,
        cwd=source.cwd,
    )


def check_fork(opened: OpenedThread, asked: ForkParams) -> str | None:
    """Say what is wrong with a fork's answer; None when it is an ephemeral child with all that was asked for."""
    thread = opened.thread
    if not thread.id or thread.id == asked.thread_id:
        return "it names the source itself as the child"
    if thread.ephemeral is not True:
        return "the child is not ephemeral"
    if thread.path is not None:
        return "the child is written to a file"
    if thread.forked_from_id != asked.thread_id:
        return "the child was forked from another thread"
    if thread.turns:
        return "the child's answer shows inherited turns"
    if opened.model != asked.model or opened.model_provider != asked.model_provider:
        return "the child has another model or provider than its source"
    if opened.approval_policy != asked.approval_policy or opened.approvals_reviewer != asked.approvals_reviewer:
        return "the child has another approval policy or reviewer than was asked for"
    if opened.sandbox.get("type") != "readOnly" or opened.sandbox.get("networkAccess", False) is not False:
        return "the child is less restricted than was asked for"
    if opened.cwd != asked.cwd:
        return "the child works in another directory than its source"
    return None


def check_started(opened: OpenedThread) -> str | None:
    """Say what is wrong with the answer of a start; None when it is a thread of its own."""
    if not opened.thread.id:
        return "it names no thread"
    if opened.thread.ephemeral or opened.thread.forked_from_id is not None:
        return "it is not a durable thread of its own"
    return None


def check_resumed(asked: ResumeParams) -> Callable[[OpenedThread], str | None]:
    """Return a check of a resume's answer: it is the thread that was asked for, with the settings that were.

    A server passes over the settings when it has the thread still loaded.
    """

    def check(opened: OpenedThread) -> str | None:
        if opened.thread.id != asked.thread_id or opened.thread.ephemeral:
            return "it is not the durable thread that was asked for"
        pairs = (
            (asked.model, opened.model),
            (asked.model_provider, opened.model_provider),
            (asked.approval_policy, opened.approval_policy),
            (None if asked.sandbox is None else SANDBOX_TYPES[asked.sandbox], opened.sandbox.get("type")),
        )
        if any(wanted is not None and wanted != given for wanted, given in pairs):
            return "the thread has other settings than were asked for"
        return None

    return check


def turn_params(
    thread_id: str,
    content: tuple[Content, ...],
    client_submit_id: str | None,
    settings: SourceSettings,
    host_context: str | None,
    *,
    had_context: bool = False,
    mode: str | None = None,
) -> TurnStartParams:
    """Return a turn of a canonical session; its settings are the thread's. The host's context goes with it.

    Args:
      mode: what to say of the turn's mode; None: nothing, unless something else makes it necessary.

    The server keeps a turn's instructions until it is told of others (seen on 0.163). So when there is no context any
    more but the thread had one, the mode is sent without any, for which the server has words of its own.
    """
    is_said = had_context or host_context is not None or mode is not None
    return TurnStartParams(
        thread_id=thread_id,
        input=input_of(content),
        client_user_message_id=client_submit_id,
        collaboration_mode=_mode(settings, host_context, mode or settings.mode) if is_said else None,
    )


def _mode(settings: SourceSettings, instructions: str | None, mode: str) -> CollaborationMode:
    if mode == "plan" and instructions is not None:
        instructions = f"{PLAN_INSTRUCTIONS}\n\n{instructions}"
    return CollaborationMode(
        mode=mode,
        settings=CollaborationSettings(
            model=settings.model, reasoning_effort=settings.effort, developer_instructions=instructions
        ),
    )


def side_turn_params(
    thread_id: str,
    content: tuple[Content, ...],
    client_submit_id: str | None,
    source: SourceSettings,
    instructions: str,
    *,
    mode: str | None = None,
) -> TurnStartParams:
    """Return a turn of a Side: everything of its source that the thread would otherwise not have.

    Args:
      mode: the turn's own; None is the source's.
    """
    return TurnStartParams(
        thread_id=thread_id,
        input=input_of(content),
        client_user_message_id=client_submit_id,
        cwd=source.cwd,
        model=source.model,
        effort=source.effort,
        service_tier=source.service_tier,
        approval_policy=source.approval_policy,
        approvals_reviewer=REVIEWER,
        sandbox_policy=source.sandbox_policy,
        collaboration_mode=_mode(source, instructions, mode or source.mode),
    )
