"""Starts the user's script with the agent in the foreground and returns how it ended."""
