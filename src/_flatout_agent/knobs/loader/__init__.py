"""The knobs of a DataLoader, and how a loader in use gets other settings."""
