"""The command line: the only place that chooses providers, by entry point, and puts the parts together.

Every command is a module with ``register`` and ``run``; `main` lists them. Nothing else imports this package.
"""

from tutti_side.cli.main import main

__all__ = ["main"]
