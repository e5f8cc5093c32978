"""The long run: ``pytest tests/replication/fuzz --hypothesis-profile=fuzz``."""

from hypothesis import settings

settings.register_profile("fuzz", max_examples=20_000, deadline=None)
settings.register_profile("brief", max_examples=300, deadline=None)
