"""The reader: every kind of text is looked for everywhere, the strongest witnesses first."""

from __future__ import annotations

from flatout.doctor.paste import fields, host, kernel, libraries, packages, prose, smi, smi_query, variables
from flatout.doctor.paste.clean import clean
from flatout.doctor.paste.draft import Draft
from flatout.doctor.paste.messages import reading
from flatout.machine.machine_facts import Facts

READERS = (smi, smi_query, fields, variables, packages, kernel, libraries, host, reading, prose)


def read(text: str) -> Facts:
    """What the pasted text says of a machine; nothing at all where it is no text."""
    draft = Draft()
    cleaned = clean(text)
    if cleaned is None:
        return draft.done()
    for reader in READERS:
        try:
            reader.read(cleaned, draft)
        except Exception:  # noqa: BLE001 - any text gets here: one reader that stumbles must not take the others with it
            continue
    return draft.done()
