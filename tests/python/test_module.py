"""The files of the package: one module for all Pythons, the library beside it, or another one."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import attn_c

PACKAGE = pathlib.Path(attn_c.__file__).parent
SHOW_LIBRARY = """
import attn_c
with open("/proc/self/maps") as maps:
    print({line.split()[-1] for line in maps if "libattn_c" in line})
"""


def run(code, **environment):
    """Output of a fresh Python that sees the package by the same path as this one."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code], text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_module_is_for_every_python():
    modules = [path.name for path in PACKAGE.glob("_native*")]
    assert modules == ["_native.abi3.so"]
    assert (PACKAGE / "py.typed").exists()


def test_the_library_lies_beside_the_module():
    found = (PACKAGE / "libattn_c.so.0").resolve()
    assert str(found) in run(SHOW_LIBRARY, ATTN_C_LIBRARY="")


def test_another_library_can_be_named(tmp_path):
    copy = tmp_path / "libattn_c.so.0"
    shutil.copy((PACKAGE / "libattn_c.so.0").resolve(), copy)
    assert str(copy) in run(SHOW_LIBRARY, ATTN_C_LIBRARY=str(copy))


def test_importing_makes_no_thread_and_prints_nothing():
    code = ("import os, numpy\n"
            "count = lambda: len(os.listdir('/proc/self/task'))\n"
            "before = count()\nimport attn_c\nattn_c.Context('cpu')\nprint(count() - before)\n")
    assert run(code) == "0\n"


def test_errors_have_a_class_even_for_the_flat_functions_alone():
    code = ("from attn_c import native, Unsupported\n"
            "context = native.attn_context_create(native.attn_context_desc())\n"
            "desc = native.attn_op_desc()\n"
            "desc.domain, desc.type, desc.version = 'x', 'y', 1\n"
            "try:\n    native.attn_op_create(context, desc)\n"
            "except Unsupported as error:\n    print(error.status)\n")
    assert run(code) == "2\n"


def test_typed_layer_has_documentation():
    for name in attn_c.__all__:
        item = getattr(attn_c, name)
        assert item.__doc__, name
        if not isinstance(item, type) or issubclass(item, (tuple, Exception)):
            continue
        for member in vars(item).values():
            if callable(member) and not member.__name__.startswith("_"):
                assert member.__doc__, f"{name}.{member.__name__}"


def test_unknown_library_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="ImportError: ATTN_C_LIBRARY is .*nowhere.so"):
        run("import attn_c", ATTN_C_LIBRARY=str(tmp_path / "nowhere.so"))
    with pytest.raises(AssertionError, match="ImportError: .*libm.so.6, which is no library of"):
        run("import attn_c", ATTN_C_LIBRARY="libm.so.6")
