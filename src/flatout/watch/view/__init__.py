"""What is shown of a session: records that a browser takes as well, and rows of a terminal made from them. Pure."""
