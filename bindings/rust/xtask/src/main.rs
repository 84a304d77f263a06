//! Writes `attn-c-sys/src/bindings.rs` from the C headers: `cargo run -p xtask -- generate`.
//! With `check` it compares what it would write with what is there.
//!
//! Needs libclang; `LIBCLANG_PATH` names its folder, and `CLANG_INCLUDE` a folder with `stddef.h`
//! where libclang came without headers of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `cargo run` prints where it is asked for nothing that it knows.
const USAGE: &str = "usage: cargo run -p xtask -- generate|check";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../attn-c-sys/src")
}

/// The text of the bindings, always for the same target, so that it does not depend on the machine.
fn bindings() -> Result<String, String> {
    let include = folder().join("../../../../include");
    let mut builder = bindgen::Builder::default()
        .header(include.join("attn_c_host.h").to_string_lossy())
        .clang_args(["-std=c99", "--target=x86_64-unknown-linux-gnu", "-I"])
        .clang_arg(include.to_string_lossy());
    if let Ok(more) = std::env::var("CLANG_INCLUDE") {
        builder = builder.clang_args(["-I", &more]);
    }
    builder
        .allowlist_item("(attn|ATTN)_.*")
        .blocklist_item("ATTN_.*INIT|ATTN_EXPORT|ATTN_C_.*")
        .clang_macro_fallback()
        .clang_macro_fallback_build_dir(std::env::temp_dir())
        .dynamic_library_name("AttnC")
        .dynamic_link_require_all(true)
        .default_macro_constant_type(bindgen::MacroTypeVariation::Signed)
        .derive_default(false)
        .layout_tests(true)
        .merge_extern_blocks(true)
        .rust_target(bindgen::RustTarget::stable(88, 0).map_err(|error| error.to_string())?)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .map(|bindings| bindings.to_string())
        .map_err(|error| error.to_string())
}

fn run(command: &str) -> Result<String, String> {
    let file = folder().join("bindings.rs");
    match command {
        "generate" => {
            std::fs::write(&file, bindings()?).map_err(|error| error.to_string())?;
            Ok(format!("wrote {}", file.display()))
        }
        "check" => {
            let there = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
            let wanted = bindings()?;
            let differing = there.lines().zip(wanted.lines()).find(|(old, new)| old != new);
            if there == wanted {
                return Ok("bindings.rs is what bindgen makes of the headers".to_string());
            }
            Err(match differing {
                Some((old, new)) => {
                    format!("bindings.rs differs: has {old:?}, should have {new:?}")
                }
                None => "bindings.rs differs in its length".to_string(),
            } + "; cargo run -p xtask -- generate")
        }
        _ => Err(USAGE.to_string()),
    }
}

fn main() -> ExitCode {
    match run(&std::env::args().nth(1).unwrap_or_default()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
