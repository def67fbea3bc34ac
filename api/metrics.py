"""What the API counts of itself, in Prometheus' terms."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """The metrics of one application: a registry of its own, so that several can live side by side."""

    def __init__(self, viewers: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter(
            "turnhold_http_requests", "Requests answered.", labels, registry=self._registry
        )
        self._seconds = Histogram(
            "turnhold_http_request_seconds",
            "Seconds until a request was answered; a stream's are its length.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        Gauge("turnhold_viewers", "Streams and waits open now.", registry=self._registry).set_function(
            viewers
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)
