"""The author's side: defining an Agent, and what its handlers are given."""
