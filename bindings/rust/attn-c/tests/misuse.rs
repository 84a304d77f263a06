//! The programs of the module `misuse`: those that must not compile fail with the codes that they
//! name, and the one before each compiles. (Doc tests compare no codes on stable compilers.)

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of the documentation: what stands behind the fence, and its text.
struct Program {
    tags: String,
    lines: Vec<String>,
}

fn programs(source: &str) -> Vec<Program> {
    let mut found: Vec<Program> = Vec::new();
    let mut open = false;
    for line in source.lines().filter_map(|line| line.strip_prefix("//!")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if let Some(tags) = line.strip_prefix("```") {
            open = !open;
            if open {
                found.push(Program { tags: tags.to_string(), lines: Vec::new() });
            }
        } else if open {
            let shown = line.strip_prefix("# ").unwrap_or(line);
            found.last_mut().unwrap().lines.push(shown.to_string());
        }
    }
    found
}

/// Where cargo has put this crate: its library, and the folder of what it depends on.
fn built() -> (PathBuf, PathBuf) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .args(["build", "--locked", "--offline", "--lib", "-p", "attn-c"])
        .arg("--message-format=json")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let library = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "attn_c")
        .find_map(|message| message["filenames"][0].as_str().map(PathBuf::from))
        .unwrap_or_else(|| {
            panic!("cargo built nothing: {}", String::from_utf8_lossy(&done.stderr))
        });
    let deps = library.with_file_name("deps");
    (library, deps)
}

/// Codes of the errors that the compiler has for a program; "none" for one without a code.
fn errors(program: &Program, file: &Path, (library, deps): &(PathBuf, PathBuf)) -> Vec<String> {
    let mut text = program.lines.join("\n");
    if !text.contains("fn main") {
        text = format!("#![allow(unused)]\nfn main() {{\n{text}\n}}\n");
    }
    std::fs::write(file, text).unwrap();
    let mut named = std::ffi::OsString::from("attn_c=");
    named.push(library);
    let done = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2021", "--emit=metadata", "--error-format=json", "--extern"])
        .arg(named)
        .arg("-L")
        .arg(deps)
        .arg("-o")
        .arg(file.with_extension("rmeta"))
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    let messages = text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let codes: BTreeSet<String> = messages
        .filter(|message| message["level"] == "error")
        .filter(|message| message["spans"].as_array().is_some_and(|spans| !spans.is_empty()))
        .map(|message| message["code"]["code"].as_str().unwrap_or("none").to_string())
        .collect();
    assert_eq!(done.status.success(), codes.is_empty(), "{text}");
    codes.into_iter().collect()
}

/// How many lines only one of two programs has.
fn differing(one: &Program, other: &Program) -> usize {
    let only = |a: &Program, b: &Program| a.lines.iter().filter(|l| !b.lines.contains(l)).count();
    only(one, other).max(only(other, one))
}

#[test]
fn what_must_not_compile_fails_for_its_reason() {
    let all = programs(include_str!("../src/misuse.rs"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let crates = built();
    assert!(all.len() >= 20, "{} programs were found", all.len());
    for (number, pair) in all.chunks(2).enumerate() {
        let [good, bad] = pair else { panic!("the last program stands alone") };
        let wanted = bad.tags.strip_prefix("compile_fail,").expect("a program that must fail");
        assert_eq!(good.tags, "no_run", "each stands behind one that compiles");
        assert!(differing(good, bad) <= 2, "pair {number} differs in more than two lines");
        let file = folder.join(format!("misuse_{number}.rs"));
        assert_eq!(errors(good, &file, &crates), [""; 0], "{}", good.lines.join("\n"));
        assert_eq!(errors(bad, &file, &crates), [wanted], "{}", bad.lines.join("\n"));
    }
}

#[test]
fn another_error_is_another_code() {
    let program = |text: &str| Program {
        tags: String::new(),
        lines: text.lines().map(str::to_string).collect(),
    };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("misuse_other.rs");
    let crates = built();
    assert_eq!(errors(&program("let text: u32 = \"\";"), &file, &crates), ["E0308"]);
    assert_eq!(errors(&program("attn_c::no_such_function();"), &file, &crates), ["E0425"]);
    assert_eq!(errors(&program("let x = ;"), &file, &crates), ["none"]);
}
