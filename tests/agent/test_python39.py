"""The agent is valid on Python 3.9: syntax, and imports of the standard library and torch alone."""

import ast
import glob
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[2] / "src" / "_flatout_agent"
FILES = sorted(AGENT.rglob("*.py"))

# In the standard library of 3.9: what 3.11 added since is not there.
NEWER = {"tomllib", "asyncio.taskgroups", "asyncio.timeouts"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(AGENT)))
def test_parses_as_3_9_and_imports_little(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    assert not any(isinstance(node, getattr(ast, "Match", ())) for node in ast.walk(tree))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module]
        for name in names:
            top = name.split(".")[0]
            assert top in {"torch", "_flatout_agent", "sitecustomize"} or top in sys.stdlib_module_names, name
            assert name not in NEWER


def old_python():
    candidates = [shutil.which("python3.9"), *glob.glob(str(Path.home() / ".pyenv/versions/3.9*/bin/python3.9"))]
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.mark.skipif(old_python() is None, reason="no Python 3.9 on this machine; its syntax is checked above")
def test_runs_on_a_real_3_9(script, flatout):
    """Every module imports there, and a script without torch runs under the agent."""
    modules = [
        str(path.relative_to(AGENT.parent).with_suffix("")).replace("/", ".") for path in FILES if path.parent.name != "inject"
    ]
    code = f"import sys; sys.path.insert(0, {str(AGENT.parent)!r})\nfor name in {modules!r}: __import__(name)"
    subprocess.run([old_python(), "-W", "error", "-c", code], check=True)
    ended = flatout(
        "run", "--python", old_python(), script("import sys; print(sys.version_info[:2], '_flatout_agent' in sys.modules)")
    )
    assert ended.stdout == b"(3, 9) True\n"


def test_sitecustomize_parses_on_much_older_pythons():
    source = (AGENT / "inject" / "sitecustomize.py").read_text(encoding="ascii")
    ast.parse(source, feature_version=(3, 4))
