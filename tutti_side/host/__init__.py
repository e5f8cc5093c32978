"""The product: what an application calls.

`open_host` nests providers and controller and yields an `AgentHost`. The host imports no provider: which there are is
the caller's choice.
"""

from tutti_side.host.agent_host import AgentHost, HostIdentity, open_host
from tutti_side.host.errors import ProviderChoiceError

__all__ = ["AgentHost", "HostIdentity", "ProviderChoiceError", "open_host"]
