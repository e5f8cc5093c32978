# What lives here: everything that stands in for Codex or for its model, shipped so that others can test with it.
#
#   model_script       what a model says, as data; drives both halves below
#   scripted_model     a loopback model for the real binary; codex_home, mcp_server: its surroundings
#   app_server_script  the fake app-server as a pure machine; app_server_faults: what it can do wrong
#   fake_process       its shell as a process in place of the binary
#   fake_task          its shell as a Trio task over a transport
#   traces, replay     a recorded session played against a server, and what of two runs can be compared
#   simulated          the adapter over fakes in tasks, with drawn faults: for `tutti_side.testing.simulate`
#   kit_bed            the real binary under `tutti_side.testing.adapter_suite`; not imported here
#   testbed            model + home + environment + binary: the entry point `tutti_side.testbeds`
#
# Imported by tests, benchmarks, the demo (by entry point) and users' tests; never by the provider itself.
"""Stand-ins for Codex and its model."""

from .app_server_faults import (
    AnswerLate,
    AnswerTwice,
    CrashAfterSends,
    CrashOn,
    DropTurnCompleted,
    ForkAnswer,
    ForkOrder,
    GarbageBefore,
    NeverAnswer,
    Overloaded,
    StopReading,
    Strangers,
    TurnStartsFirst,
)
from .app_server_script import AppServerMachine, FakeSetup, StoredThread
from .codex_home import ModelProvider, ToolServer, testing_env, write_codex_home
from .fake_process import write_fake_binary, write_setup
from .fake_task import FakeAppServer, serve_fake
from .model_script import (
    Answer,
    CallTool,
    Drop,
    Fail,
    ModelScript,
    Pause,
    Reason,
    Reply,
    Say,
    SearchWeb,
    Think,
    apply_patch,
    ask_user,
    run_command,
)
from .scripted_model import ModelRequest, ScriptedModel, open_scripted_model
from .simulated import SimulatedCodex
from .testbed import CodexTestbed, Testbed, demo_script, make_testbed

__all__ = [
    "Answer",
    "AnswerLate",
    "AnswerTwice",
    "AppServerMachine",
    "CallTool",
    "CodexTestbed",
    "CrashAfterSends",
    "CrashOn",
    "Drop",
    "DropTurnCompleted",
    "Fail",
    "FakeAppServer",
    "FakeSetup",
    "ForkAnswer",
    "ForkOrder",
    "GarbageBefore",
    "ModelProvider",
    "ModelRequest",
    "ModelScript",
    "NeverAnswer",
    "Overloaded",
    "Pause",
    "Reason",
    "Reply",
    "Say",
    "ScriptedModel",
    "SearchWeb",
    "SimulatedCodex",
    "StopReading",
    "StoredThread",
    "Strangers",
    "Testbed",
    "Think",
    "ToolServer",
    "TurnStartsFirst",
    "apply_patch",
    "ask_user",
    "demo_script",
    "make_testbed",
    "open_scripted_model",
    "run_command",
    "serve_fake",
    "testing_env",
    "write_codex_home",
    "write_fake_binary",
    "write_setup",
]
