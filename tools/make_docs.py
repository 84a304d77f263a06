"""Writes the API reference of every language into one folder: make_docs.py TARGET.

C and C++ come from the comments of the headers (tools/c_reference.py, cpp_reference.py), Python
from the docstrings, C# from what the compiler left of the comments (AttnC.xml), Rust from cargo
doc. A public name without words is an error; a language whose tools are not on this machine is left
out, with the reason.
"""

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import cpp_reference
from c_reference import missing, read_header

ROOT = Path(__file__).resolve().parent.parent
SKIP = 77
HEADERS = ["attn_c.h", "attn_c_host.h"]
CPP_HEADERS = ["attn_c.hpp", "attn_c_objects.hpp", "attn_c_host.hpp"]
STYLE = """body{max-width:60em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif}
pre,code{font-family:monospace;background:#f4f4f4}pre{padding:.6em;overflow-x:auto}
table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;vertical-align:top;text-align:left}
h3{margin-bottom:.2em;border-top:1px solid #ccc;padding-top:.6em}"""
MEMBER = re.compile(r"^AttnC\.(\w+)(?:\.(.*))?$")


def page(title, body):
    return f"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" \
           f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n" \
           f"<body>\n{body}\n</body></html>\n"


def inline(text, links=()):
    """Words of a comment: code between backticks, and links to names that the page has."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    known = set(links)
    text = re.sub(r"\b(?:attn|ATTN)_\w+",
                  lambda match: f'<a href="#{match[0]}">{match[0]}</a>' if match[0] in known
                  else match[0], text)
    return text.replace("\n\n", "<br><br>")


def rows(items):
    return "<table>" + "".join(
        f"<tr><td><code>{html.escape(left)}</code></td><td>{right}</td></tr>"
        for left, right in items) + "</table>"


def c_entry(entry, names):
    text = f'<h3 id="{entry.name}">{entry.name}</h3>\n<pre>{html.escape(entry.text)}</pre>\n' \
           f"<p>{inline(entry.comment, names)}</p>\n"
    if entry.fields:
        text += rows((field.text, inline(field.comment, names)) for field in entry.fields)
    return text


def header_pages(target, title, headers, reader):
    """The page of some headers; findings."""
    findings, body, names = [], [], set()
    read = {name: reader(ROOT / "include" / name) for name in headers}
    for name, (_, sections) in read.items():
        findings += missing(name, sections)
        names |= {entry.name for section in sections for entry in section.entries}
    for name, (head, sections) in read.items():
        body.append(f"<h1>{name}</h1>\n<pre>{html.escape(head)}</pre>")
        for section in sections:
            body.append(f"<h2>{html.escape(section.title)}</h2>")
            constants = [one for one in section.entries if one.kind == "constant"]
            body += [c_entry(one, names) for one in section.entries if one.kind != "constant"]
            if constants:
                body.append(rows((one.text, inline(one.comment, names)) for one in constants))
    target.write_text(page(title, "\n".join(body)), encoding="utf-8")
    return findings, f"{len(names)} names"


def python_pages(target):
    """docs/reference/python.md, which python_reference.py compares with the docstrings."""
    from markdown_it import MarkdownIt  # where the environment is set up

    checker = ROOT / "tests" / "tools" / "python_reference.py"
    done = subprocess.run([sys.executable, "-B", str(checker), "--check"], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    body = MarkdownIt("commonmark").enable("table").render(text)
    (target / "python.html").write_text(page("attn_c: Python", body), encoding="utf-8")
    return done.stdout.splitlines() if done.returncode else [], \
        f"{text.count(chr(10) + '**`')} members"


def csharp_pages(target, words):
    """AttnC.xml, which the compiler writes, and without which it refuses an uncommented name."""
    if not words.exists():
        return [], "left out: AttnC.xml is not there (mcs builds it)"
    types, members = {}, {}
    for member in ElementTree.parse(words).getroot().iter("member"):
        kind, _, name = member.get("name").partition(":")
        match = MEMBER.match(name)
        if match is None or name.startswith("AttnC.Native"):
            continue
        text = inline(" ".join("".join(member.find("summary").itertext()).split()))
        if kind == "T":
            types[match[1]] = text
        else:
            shown = match[2].replace("#ctor", match[1]).replace("System.", "")
            members.setdefault(match[1], []).append((shown.replace("AttnC.", ""), text))
    body = "<h1>AttnC</h1>\n" + "\n".join(
        f'<h3 id="{name}">{name}</h3>\n<p>{text}</p>\n{rows(members.get(name, []))}'
        for name, text in sorted(types.items()))
    (target / "csharp.html").write_text(page("attn_c: C#", body), encoding="utf-8")
    return [], f"{sum(map(len, members.values()))} members of {len(types)} types"


def rust_pages(target, folder):
    """cargo doc, warnings as errors, by the crates that are on this machine."""
    done = subprocess.run(
        [sys.executable, "-B", str(ROOT / "tests" / "tools" / "run_cargo.py"),
         str(ROOT / "bindings" / "rust"), "doc", "-q", "--no-deps", "-p", "attn-c"],
        text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "CARGO_TARGET_DIR": str(folder), "RUSTDOCFLAGS": "-D warnings"})
    if done.returncode == SKIP:
        return [], "left out: " + done.stdout.strip().removeprefix("skipped: ")
    if done.returncode != 0:
        return done.stdout.splitlines(), "failed"
    shutil.copytree(folder / "doc", target / "rust", dirs_exist_ok=True)
    return [], "the crate attn-c"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, help="the folder for the pages")
    parser.add_argument("--build", type=Path, required=True, help="the build tree, for C# and Rust")
    options = parser.parse_args()
    shutil.rmtree(options.target, ignore_errors=True)
    options.target.mkdir(parents=True)
    try:
        made = {"C": ("c.html", header_pages(options.target / "c.html", "attn_c: C", HEADERS,
                                             read_header)),
                "C++": ("cpp.html", header_pages(options.target / "cpp.html", "attn_c: C++",
                                                 CPP_HEADERS, cpp_reference.read_header))}
    except ModuleNotFoundError as error:
        print(f"skipped: libclang of tests/tools/requirements-bindings.txt is not there: {error}")
        return SKIP
    made["Python"] = ("python.html", python_pages(options.target))
    made["C#"] = ("csharp.html", csharp_pages(options.target,
                                              options.build / "csharp" / "AttnC.xml"))
    made["Rust"] = ("rust/attn_c/index.html", rust_pages(options.target, options.build / "rust"))
    for language, (name, (findings, words)) in made.items():
        print(f"{language}: {words}, {len(findings)} findings")
    links = "".join(f'<li><a href="{name}">{language}</a></li>' for language, (name, _)
                    in made.items() if (options.target / name).exists())
    body = f"<h1>attn_c, name by name</h1>\n<ul>{links}</ul>\n<p>Guides are in docs/.</p>"
    (options.target / "index.html").write_text(page("attn_c", body), encoding="utf-8")
    findings = [line for _, (lines, _) in made.values() for line in lines]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
