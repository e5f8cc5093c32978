"""Where the fixtures come from: drafts in Python, which ``python -m`` with this package's name writes as JSON.

The JSON is what counts and what other languages run; a test holds that it is what these drafts write. Nothing else
imports this package.
"""
