"""The product: what an application calls.

`open_host` nests providers and controller and yields an `AgentHost`. The host imports no provider: which there are is
the caller's choice.
"""

from tutti_side.host.agent_host import AgentHost, HostIdentity, HostStatistics, open_host
from tutti_side.host.errors import MissingExtraError, ProviderChoiceError
from tutti_side.host.metadata_file import JsonFileMetadata, MetadataFileError
from tutti_side.host.notices import NOTICES_KEPT_MAX
from tutti_side.host.prometheus import PrometheusMetrics

__all__ = [
    "NOTICES_KEPT_MAX",
    "AgentHost",
    "HostIdentity",
    "HostStatistics",
    "JsonFileMetadata",
    "MetadataFileError",
    "MissingExtraError",
    "PrometheusMetrics",
    "ProviderChoiceError",
    "open_host",
]
