"""Run as a child: starts what an agent's process starts, then waits for the end of its stdin.

Prints one line when all of it runs: ``ready``. With the argument ``deaf`` it ignores stdin's end and SIGTERM as well.
"""

import os
import signal
import subprocess
import sys

DEAF_SHELL = "trap '' TERM HUP; echo up; while :; do sleep 1000; done"


def start(*command: str, **options: object) -> None:
    """Start a process and wait until it says that it is up."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
    assert process.stdout.readline() == b"up\n"


def main() -> None:
    deaf = sys.argv[1:] == ["deaf"]
    # A shell command, as agents run them: session of its own, and the shell forks.
    start("sh", "-c", "(echo up; sleep 1000; echo x); echo y", start_new_session=True)
    # A daemon of it: another session, the parent is gone, deaf to SIGTERM.
    start("sh", "-c", f'setsid sh -c "{DEAF_SHELL}" </dev/null 2>/dev/null & exit 0', start_new_session=True)
    # A tool server: ignores the end of its stdin and SIGTERM, group of its own, and an environment without any marker.
    start("sh", "-c", DEAF_SHELL, stdin=subprocess.PIPE, process_group=0, env={"PATH": os.environ["PATH"]})
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    sys.stdin.read()
    while deaf:
        signal.pause()


main()
