"""The root of this distribution's errors."""

__all__ = ["TuttiSideError"]


class TuttiSideError(Exception):
    """Every error that `tutti_side` and its providers raise on purpose."""
