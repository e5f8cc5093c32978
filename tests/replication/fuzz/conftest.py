"""The long run: ``pytest tests/replication/fuzz --hypothesis-profile=fuzz``."""

from hypothesis import settings

settings.register_profile("fuzz", max_examples=5_000)
