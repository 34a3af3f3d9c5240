"""The docs that are made from code are the ones that are committed, and their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_up_to_date():
    ended = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_links_between_our_pages_exist():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


LONGEST_README = 700  # words, as `wc -w` counts them


def commands(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines]


@pytest.mark.parametrize(("english", "chinese"), [("README.md", "README.zh.md"), ("docs/usage.md", "docs/usage.zh.md")])
def test_both_languages_have_the_same_commands(english, chinese):
    assert commands(english)
    assert commands(english) == commands(chinese)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= LONGEST_README
