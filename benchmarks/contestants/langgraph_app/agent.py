"""The trivial agent as a LangGraph graph: it returns its input."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    text: str
    said: str


async def echo(state: State) -> dict[str, str]:
    return {"said": state["text"]}


graph = StateGraph(State).add_node("echo", echo).add_edge(START, "echo").add_edge("echo", END).compile()
