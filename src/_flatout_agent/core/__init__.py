"""The ground: what runs after an import, replaced attributes, faults of ours, the parent process."""
