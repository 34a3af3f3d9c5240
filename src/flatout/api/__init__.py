"""The library: the same parts as the commands, for those who want them inside their own code."""
