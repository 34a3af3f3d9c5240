"""Starts the user's script under the agent, in the foreground, and comes back with how it ended."""
