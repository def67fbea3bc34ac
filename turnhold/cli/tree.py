"""`turnhold session ls --tree`: listed Sessions with the whole trees that they stand in."""

import asyncio
from collections.abc import Iterable, Iterator

from pydantic import BaseModel

from turnhold.client import Client, SessionPage
from turnhold.session.views import SessionListed, SessionShort, SessionView


class Tree(BaseModel):
    """A Session, and what it owns, oldest first."""

    session: SessionListed
    owned: list["Tree"]

    def lines(self, stem: str = "", branch: str = "") -> Iterator[tuple[str, SessionListed]]:
        """Each Session with the branches that lead to it, as text."""
        yield stem + branch, self.session
        below = stem + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for number, tree in enumerate(self.owned, 1):
            yield from tree.lines(below, "└─ " if number == len(self.owned) else "├─ ")


class Forest(BaseModel):
    trees: list[Tree]
    next_cursor: str | None = None


async def grow(client: Client, page: SessionPage) -> Forest:
    """The trees of a page's Sessions, in the page's order."""
    listed = {session.id: session for session in page.sessions}
    roots = list(dict.fromkeys(session.root_id for session in page.sessions))
    trees = await asyncio.gather(*(_tree(client, listed.get(root), root) for root in roots))
    return Forest(trees=trees, next_cursor=page.next_cursor)


async def _tree(client: Client, root: SessionListed | None, root_id: str) -> Tree:
    root = root or _row(await client.session(root_id))
    return _grown(root, list(await client.owned(root_id, recursive=True)))


def _row(view: SessionView) -> SessionListed:
    shared = {name: getattr(view, name) for name in SessionShort.model_fields}
    return SessionListed(**shared, held=bool(view.holds))


def _grown(session: SessionListed, below: Iterable[SessionListed]) -> Tree:
    owned = sorted((s for s in below if s.parent_id == session.id), key=lambda s: s.created_at)
    return Tree(session=session, owned=[_grown(s, below) for s in owned])
