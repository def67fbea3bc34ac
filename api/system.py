"""Whether the process is up, whether it can work, and what it has counted."""

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from api.problems import described
from api.services import Wired
from turnhold.session.values import Record

router = APIRouter(tags=["system"])


class Health(Record):
    status: Literal["ok"] = "ok"


@router.get("/healthz", responses=described("internal_error"))
async def healthz() -> Health:
    """This process is up."""
    return Health()


@router.get(
    "/readyz",
    responses=described("worker_unavailable", "temporal_unavailable", "rate_limited", "internal_error"),
)
async def readyz(wired: Wired) -> Health:
    """Temporal is reachable and a worker polls; one that gets work, where workers have versions."""
    await wired.gateway.check_workers()
    return Health()


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **described("internal_error"),
    },
)
async def metrics(wired: Wired) -> Response:
    """What this process has counted, in Prometheus' text format."""
    return Response(wired.metrics.text(), media_type=CONTENT_TYPE_LATEST)
