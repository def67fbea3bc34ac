"""The store: what Sessions keep outside Temporal, as objects in a directory or a bucket."""
