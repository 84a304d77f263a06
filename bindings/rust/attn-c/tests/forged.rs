//! Libraries that are not the one that they say: opened, or refused in words. The forged library is
//! that of tests/abi, built here by the C compiler on top of the real one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use attn_c::{Context, Library, Status};

/// Compiles C into a library; `arguments` are the source and what it needs.
fn compiled(name: &str, arguments: &[OsString]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&target)
        .args(arguments)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    target
}

fn forged() -> PathBuf {
    let real = PathBuf::from(std::env::var_os("ATTN_C_LIBRARY").expect("it names the library"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut path: OsString = "-Wl,-rpath,".into();
    path.push(real.parent().unwrap());
    let mut include: OsString = "-I".into();
    include.push(root.join("include"));
    let source = root.join("tests/abi/forged_library.c");
    compiled("forged.so", &[source.into(), include, "-Wl,--no-as-needed".into(), real.into(), path])
}

fn refused(path: &Path) -> attn_c::Error {
    // SAFETY: nothing runs on loading these.
    unsafe { Library::open_at(path) }.unwrap_err()
}

/// One test, because the forged library reads the environment.
#[test]
fn versions_that_are_not_this_crates() {
    let forged = forged();
    for (kind, words) in [("smaller", "has the ABI 0.0"), ("major", "has the ABI 5.1")] {
        std::env::set_var("ATTN_FORGE", kind);
        let error = refused(&forged);
        assert_eq!(error.status, Status::Version);
        assert!(error.message.contains(words) && error.message.contains("needs 0.1"), "{error}");
    }
    std::env::set_var("ATTN_FORGE", "newer");
    // SAFETY: its functions are the real library's.
    let newer = unsafe { Library::open_at(&forged) }.unwrap();
    assert_eq!(newer.abi_version(), attn_c::sys::ATTN_ABI_VERSION as u32 + 7);
    assert!(Context::cpu(newer).unwrap().info().unwrap().thread_count > 0);

    // The version of this crate, without the functions of it.
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("few.c");
    let text = "unsigned attn_abi_version(void) { return 1; }\n\
                const char* attn_version(void) { return \"0\"; }\n";
    std::fs::write(&source, text).unwrap();
    let error = refused(&compiled("few.so", &[source.clone().into()]));
    assert_eq!(error.status, Status::Version);
    assert!(error.message.contains("0.1, but not all of its functions"), "{error}");
    assert!(error.message.contains("attn_get_api"), "{error}");

    std::fs::write(&source, "int other(void) { return 1; }\n").unwrap();
    let error = refused(&compiled("other.so", &[source.into()]));
    assert_eq!(error.status, Status::Unavailable);
    assert!(error.message.contains("is no attn_c library"), "{error}");
}
