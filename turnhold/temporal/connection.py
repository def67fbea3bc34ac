"""How every process reaches Temporal: `TEMPORAL_*` and `temporal.toml`, and nothing of ours."""

from datetime import timedelta

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.runtime import Runtime
from temporalio.service import RetryConfig, RPCError

from turnhold.temporal.failures import plain
from turnhold.temporal.plugin import PLUGIN

DEFAULT_ADDRESS = "127.0.0.1:7233"


class CannotConnect(Exception):
    """Temporal cannot be reached, or the connection is configured wrongly. One clear line."""


async def connect(
    *,
    address: str | None = None,
    namespace: str | None = None,
    patience: float = 10.0,
    lazy: bool = False,
    runtime: Runtime | None = None,
) -> Client:
    """A client with the shared plugin.

    Args:
        address: instead of `TEMPORAL_ADDRESS`.
        namespace: instead of `TEMPORAL_NAMESPACE`.
        patience: seconds that the SDK itself retries one call. A worker has much of it; the API
            little, since its callers wait.
        lazy: connect with the first call, so that a process can start while Temporal is away (S-93).
        runtime: the SDK runtime, where it has been configured (metrics).

    Raises:
        CannotConnect: unless `lazy`, when Temporal does not answer; always when the configuration
            is wrong.
    """
    try:
        config = ClientConfig.load_client_connect_config()
    except Exception as error:
        raise CannotConnect(f"the Temporal configuration cannot be read: {error}") from error
    target = address or config.get("target_host") or DEFAULT_ADDRESS
    try:
        return await Client.connect(
            target,
            namespace=namespace or config.get("namespace") or "default",
            api_key=config.get("api_key"),
            tls=config.get("tls"),
            rpc_metadata=config.get("rpc_metadata") or {},
            plugins=[PLUGIN],
            lazy=lazy,
            runtime=runtime,
            connect_timeout=timedelta(seconds=3),
            retry_config=RetryConfig(
                initial_interval_millis=50,
                max_interval_millis=1_000,
                max_elapsed_time_millis=int(patience * 1_000),
                max_retries=100,
            ),
        )
    except (RuntimeError, RPCError, ValueError) as error:
        raise CannotConnect(f"Temporal at {target} cannot be reached: {plain(error)}") from error
