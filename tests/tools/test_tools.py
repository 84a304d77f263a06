"""The scripts that judge the project: what they count, what they find, what they let pass."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("tools", "tests/tools", "tests/native")]

import c_reference  # noqa: E402
import check_repository  # noqa: E402
import check_wrapped  # noqa: E402
import cpp_reference  # noqa: E402
import dev  # noqa: E402
import dev_progress  # noqa: E402
import dev_results  # noqa: E402
import page_excerpts  # noqa: E402
import readme_program  # noqa: E402

CTEST = """<testsuite name="ctest">
  <testcase name="alone" status="run"><system-out>fine</system-out></testcase>
  <testcase name="broken" status="fail"><failure message="Failed"/></testcase>
  <testcase name="left_out" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
    <system-out>looked around\nskipped: no compiler here\n</system-out></testcase>
  <testcase name="many" status="fail"><failure message="Failed"/></testcase>
  <testcase name="crashed" status="fail"><failure message="SEGFAULT"/></testcase>
</testsuite>"""

GOOGLETEST = """<testsuites><testsuite name="Suite">
  <testcase name="One" status="run" result="completed" classname="Suite"/>
  <testcase name="Two" status="run" result="completed" classname="Suite">
    <failure message="two.cc:3&#x0A;Expected: 1"/></testcase>
  <testcase name="Three" status="run" result="skipped" classname="Suite">
    <skipped message="three.cc:9&#x0A;no AVX-512 here"/></testcase>
</testsuite></testsuites>"""

ALL_PASSED = """<testsuites><testsuite name="Suite">
  <testcase name="One" status="run" result="completed" classname="Suite"/>
</testsuite></testsuites>"""


@pytest.fixture(name="counts")
def fixture_counts(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "many.xml").write_text(GOOGLETEST)
    (results / "crashed.xml").write_text(ALL_PASSED)
    junit = tmp_path / "ctest.xml"
    junit.write_text(CTEST)
    return dev_results.count_ctest(junit, results)


def test_cases_are_summed_over_entries_and_their_files(counts):
    # alone, Suite.One, and the case that the crashed entry finished
    assert counts.passed == 3
    assert counts.line() == "3 passed, 3 failed, 2 skipped"


def test_failures_name_the_case_or_the_entry(counts):
    assert [name for name, _ in counts.failures] == ["broken", "Suite.Two", "crashed"]


def test_skips_keep_their_reason(counts):
    assert counts.skips == [("left_out", "no compiler here"), ("Suite.Three", "no AVX-512 here")]


def test_damaged_result_file_is_a_failure(tmp_path):
    (tmp_path / "many.xml").write_text("<testsuites>")
    (tmp_path / "ctest.xml").write_text('<t><testcase name="many" status="run"/></t>')
    assert len(dev_results.count_ctest(tmp_path / "ctest.xml", tmp_path).failures) == 1


@pytest.mark.parametrize("line, finding", [
    ("int a;  // " + "x" * 90, "101 columns"),
    ("int a; ", "space at the end"),
    ("\tint a;", "a tab"),
    ("// " + "TO" + "DO: later", "unfinished"),
    ("GTEST_" + "SKIP();", "without a reason"),
])
def test_rules_of_a_line_find_it(line, finding):
    assert [text for text in check_repository.check_code("src/a.cc", [line]) if finding in text]


def test_rules_of_a_line_let_good_code_pass():
    lines = ["int a = 1;  // why", 'GTEST_SKIP() << "no device";', "x" * 100]
    assert not list(check_repository.check_code("src/a.cc", lines))


def test_a_path_of_one_machine_is_found():
    line = "see /" + "work/main for more"
    assert list(check_repository.check_text("README.md", [line]))
    assert not list(check_repository.check_text("README.md", ["see docs/" + "work/main"]))


@pytest.mark.parametrize("folder, include, allowed", [
    ("ops", "core/problem.h", True), ("ops", "cpu/engine.h", False), ("core", "ops/x.h", False),
    ("core", "attn_c.h", True), ("cpu", "hwy/highway.h", True), ("api", "cpu/engine.h", True),
])
def test_layers(folder, include, allowed):
    found = list(check_repository.check_layers(f"src/{folder}/a.cc", [f'#include "{include}"']))
    assert bool(found) != allowed


def test_readme_program_is_the_block_with_its_output(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("```sh\nls\n```\n```c\nint x;\n```\nprints\n```text\n1\n```\n")
    assert readme_program.program(readme) == ("int x;\n", "1\n")
    readme.write_text("```c\nint x;\n```\n")
    assert readme_program.program(readme) == (None, None)


def test_readme_program_with_other_output_fails(tmp_path):
    if subprocess.run(["cc", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no C compiler by the name cc")
    library = tmp_path / "libnothing.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
    readme = tmp_path / "README.md"
    script = [sys.executable, ROOT / "tests" / "tools" / "readme_program.py", "--readme", readme,
              "--compiler", "cc", "--include", tmp_path, "--library", library, "--work", tmp_path]
    text = ('```c\n#include <stdio.h>\nint main(void) {{ puts("{}"); return {}; }}\n```\n'
            '```text\n1\n```\n')
    codes = []
    for printed, code in [("1", 0), ("2", 0), ("1", 3)]:
        readme.write_text(text.format(printed, code))
        codes.append(subprocess.run(script, capture_output=True, check=False).returncode)
    assert codes == [0, 1, 1]


@pytest.mark.parametrize("option, known", [("--only", "bench-smoke"), ("--preset", "tsan")])
def test_a_wrong_label_or_preset_is_told_before_anything_is_done(capsys, option, known):
    with pytest.raises(SystemExit) as refused:
        dev.parse(["test", option, "nonsense"])
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert "nonsense" in said and known in said
    assert dev.parse(["test", option, known])


def test_long_builds_say_how_far_they_are(capsys):
    times = iter([0.0, 5.0, 21.0, 25.0, 60.0])
    progress = dev_progress.Progress("building release", clock=lambda: next(times))
    dev_progress.show_ninja(["[1/9] one.o\n", "[2/9] two.o\n", "two.cc:1: warning: odd\n",
                             "[3/9] three.o\n", "[9/9] all\n", "ninja: no work to do.\n"], progress)
    assert capsys.readouterr().out == \
        "dev: building release: 2 of 9 after 21 s\ntwo.cc:1: warning: odd\n"


def test_excerpts_are_held_to_the_examples(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("```c\n  a(1);\n\nb(2);\n```\n```text\nyes\n```\n")
    (tmp_path / "one.c").write_text("int main() {\n    a(1);\n    b(2);\n}\n")
    docs = tmp_path / "docs"
    assert not list(page_excerpts.check_excerpts(docs, [tmp_path]))
    (tmp_path / "one.c").write_text("int main() {\n    a(1);\n    c(3);\n    b(2);\n}\n")
    assert list(page_excerpts.check_excerpts(docs, [tmp_path]))
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho yes\n")
    program.chmod(0o755)
    assert not list(page_excerpts.check_output(docs / "page.md", program))
    program.write_text("#!/bin/sh\necho no\n")
    assert list(page_excerpts.check_output(docs / "page.md", program))


COMMENTED = """/* At the top. */
/* ---- Part ---- */

/* Makes things. */
int attn_make(int count);
/* Two constants. */
#define ATTN_ONE 1
#define ATTN_TWO 2

/* What is made, by `call`. */
typedef struct attn_thing {
  unsigned struct_size;
  int size; /* in bytes */
  void (*call)(void* user);
} attn_thing;
"""
UNCOMMENTED = """
int attn_bare(void);
#define ATTN_KNOWN 3 /* said */
#define ATTN_BARE 4
typedef struct attn_other {
  int size; /* in bytes */
  int bare;
} attn_other;
"""


def test_every_public_name_of_a_header_has_words(tmp_path):
    pytest.importorskip("clang", reason="libclang is not there")
    path = tmp_path / "header.h"
    path.write_text(COMMENTED, encoding="utf-8")
    _, sections = c_reference.read_header(path)
    assert list(c_reference.missing("header.h", sections)) == []
    entries = {entry.name: entry for section in sections for entry in section.entries}
    assert entries["attn_make"].comment == "Makes things."
    assert entries["ATTN_TWO"].comment == "Two constants."
    assert [field.text for field in entries["attn_thing"].fields] == [
        "unsigned struct_size", "int size", "void (*call)(void* user)"]
    path.write_text(COMMENTED + UNCOMMENTED, encoding="utf-8")
    _, sections = c_reference.read_header(path)
    bare = [text.split()[1] for text in c_reference.missing("header.h", sections)]
    assert bare == ["attn_bare", "ATTN_BARE", "attn_other", "attn_other.bare"]


CPP_HEADER = """/* What it is. */
#ifndef THING_H_
#define THING_H_
int attn_count(int);
// ---- Things --------
namespace thing {
/* A thing. */
class Thing {
 public:
  Thing() = default;
  /* Of a size. */
  explicit Thing(int size) : size_(size) {}
  int size() const noexcept { return size_; } /* in bytes */
  int count() const { return attn_count(size_); }
  template <class T>
  T bare(T value) {
    return value;
  }
  int field = 1;

 private:
  int hidden() { return 0; }
  int size_ = 0;
};
struct Bare {};
inline int lonely() { return 2; }
namespace detail {
inline int inner() { return 3; }
}  // namespace detail
}  // namespace thing
#endif
"""


def test_public_members_of_cpp_without_words_are_found(tmp_path):
    pytest.importorskip("clang.cindex")
    path = tmp_path / "header.hpp"
    path.write_text(CPP_HEADER, encoding="utf-8")
    head, sections = cpp_reference.read_header(path)
    assert "What it is." in head and sections[-1].title == "Things"
    thing = next(one for one in sections[-1].entries if one.name == "Thing")
    assert [(field.text, field.comment) for field in thing.fields] == [
        ("explicit Thing(int size)", "Of a size."),
        ("int size() const noexcept", "in bytes"),
        ("int count() const", "As `attn_count`."),
        ("template <class T> T bare(T value)", ""), ("int field = 1", "")]
    bare = [text.split()[1] for text in c_reference.missing("header.hpp", sections[-1:])]
    assert bare == ["Thing.bare", "Thing.field", "Bare", "lonely"]


# ---- check_wrapped ------------------------------------------------------------------------------

def test_only_code_uses_a_function():
    source = '"""attn_one"""\nx = native.attn_two(attn_three, "attn_four")  # attn_five\n'
    assert set(check_wrapped.python_names(source)) >= {"attn_two", "attn_three"}
    assert not {"attn_one", "attn_four", "attn_five"} & set(check_wrapped.python_names(source))
    text = check_wrapped.c_like(
        'a(); // attn_one\nattn_two(); /* attn_three\n */ b("attn_four\\"");')
    assert "attn_two" in text and "b(" in text
    assert not any(word in text for word in ("attn_one", "attn_three", "attn_four"))


def test_a_function_that_no_layer_uses_is_found():
    names = [*check_wrapped.functions(), "no_such_function"]
    for language in check_wrapped.LAYERS:
        left = check_wrapped.LEFT_TO_C.get(language, set())
        found = check_wrapped.missing(names, check_wrapped.layer_of(language), left)
        assert found == ["no_such_function"], language
