"""The deep look: a few steps of a running script looked at with torch's own instruments. On request only: it costs time."""
