"""Providers that ship with tutti-side; importing this package imports none of them."""
