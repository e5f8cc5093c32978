"""Helpers for the tests of programs and providers that build on this package.

- `processes`  which processes of a child, or of a whole test, are still alive
"""
