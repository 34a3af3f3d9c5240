"""The search itself, pure: what to ask next, how two arms are compared, what is kept and why."""
