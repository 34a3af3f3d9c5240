"""The commands: one small file each. Options in, record out, exit code."""
