"""Another batch size: the largest that is safe, or the one that learns fastest."""
