"""The blocks of docs/python.md: those of Python run from top to bottom as one program, those that
need a GPU stand in the tests for one."""

import pathlib
import re

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


def test_the_blocks_of_the_page_run():
    """Each block keeps its line numbers, so that a traceback points into the page."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) == text.count("```python") >= 4
    names = {"__name__": "python.md"}
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)


def test_what_needs_a_gpu_stands_in_the_tests():
    tests = pathlib.Path(__file__).parents[1] / "python_gpu"
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted(tests.glob("*.py")))
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 2
    for block in blocks:
        assert block in sources, block
