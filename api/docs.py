"""`/docs`: the API's own description as one page that needs nothing from the network."""

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, RedirectResponse

_PAGE = Path(__file__).with_name("docs.html")
_POLICY = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

router = APIRouter(include_in_schema=False)


@router.get("/")
async def root() -> RedirectResponse:
    return RedirectResponse("/docs")


@router.get("/docs")
async def docs() -> FileResponse:
    """Every route, rendered from `/openapi.json`."""
    return FileResponse(_PAGE, media_type="text/html", headers={"Content-Security-Policy": _POLICY})
