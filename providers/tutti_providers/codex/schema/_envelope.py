"""Reading the parameters of one method out of a whole line."""

from typing import Generic, TypeVar

import msgspec

__all__ = ["Envelope", "params_decoder"]

P = TypeVar("P")


class Envelope(msgspec.Struct, Generic[P], frozen=True):
    """A message of which only the parameters matter: method and id were read before."""

    params: P


def params_decoder(params_type: type[P]) -> msgspec.json.Decoder[Envelope[P]]:
    """Return a decoder from a line to the parameters of `params_type` in it. Build it once."""
    return msgspec.json.Decoder(Envelope[params_type])  # type: ignore[valid-type]  # a type built at run time
