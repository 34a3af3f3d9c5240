"""One file per rule: `<code>_<name>.py` with a RULE. The page of a rule is `pages/<language>/<CODE>.md`."""
