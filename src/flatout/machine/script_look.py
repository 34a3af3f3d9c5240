"""A look at a training script or configuration without running it.

`ScriptLook.lines` has the line of each thing seen, under the name of its field; and under `cuda_started` the line
that starts CUDA before the script sets CUDA_VISIBLE_DEVICES, where one does. What the script gets from its command line or
configuration is taken at its default; what cannot be told is Missing ("not-literal").
"""

from __future__ import annotations

import errno
import json
from pathlib import Path

from flatout.base.file_bytes import bytes_of
from flatout.base.records import Missing
from flatout.machine import script_ast, script_config, yaml_file
from flatout.machine.machine_facts import ScriptLook

LARGEST = 4 << 20  # no script that people write is larger; a checkpoint given by mistake is

CONFIGURATIONS = (".yaml", ".yml", ".json")


def look(path: Path) -> ScriptLook | Missing:
    """What can be read off the file; Missing with the reason where it cannot be read at all."""
    try:
        data = bytes_of(path, LARGEST)
    except FileNotFoundError:
        return Missing("not-found", str(path))
    except OSError as error:
        if error.errno == errno.EFBIG:
            return Missing("too-large", str(path))
        return Missing("unreadable", f"{path}: {error.strerror or error}")
    if b"\0" in data:
        return Missing("not-text", str(path))
    if path.suffix.lower() in CONFIGURATIONS:
        try:
            return _configuration(data, path)
        except RecursionError:
            return Missing("too-large", str(path))
    tree = script_ast.parse(data)
    try:
        return tree if isinstance(tree, Missing) else script_ast.read(tree, str(path))
    except RecursionError:
        return Missing("too-large", str(path))


def _configuration(data: bytes, path: Path) -> ScriptLook | Missing:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Missing("not-text", f"{path}: {error.reason}")
    if path.suffix.lower() == ".json":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            return Missing("syntax-error", f"{path}: {error}")
        return script_config.read(value, script_config.lines_of_json(text), str(path))
    found = yaml_file.read(text)
    return found if isinstance(found, Missing) else script_config.read(*found, str(path))
