//! Runs the golden cases: `golden FOLDER`. The format and what a runner does stand in
//! docs/golden-cases.md.
//!
//! One line a case: "ok <name> <digest>" or "FAILED <name> <what is wrong>".

mod golden_case;

use std::path::Path;
use std::process::ExitCode;

use attn_c::{
    Arguments, Attribute, Binding, Context, ContextOptions, ElementType, Error, ExecuteOptions,
    Library, Op, PrepareOptions, Session, Tensor, TensorMut,
};
use golden_case::{Argument, Case};

fn attribute(value: &serde_json::Value) -> (&str, Attribute) {
    let name = value["name"].as_str().unwrap();
    let value = match value["kind"].as_str().unwrap() {
        "int" => value["value"].as_i64().unwrap().into(),
        "float" => value["value"].as_f64().unwrap().into(),
        _ => value["value"].as_str().unwrap().into(),
    };
    (name, value)
}

/// What both kinds of tensors are made of.
fn parts(case: &mut Case, argument: &Argument) -> (ElementType, *mut std::ffi::c_void, u64) {
    let block = &mut case.blocks[argument.block];
    let kind = ElementType { code: argument.code, bits: argument.bits };
    (kind, block.data_mut().as_mut_ptr().cast(), block.bytes as u64)
}

fn arguments(case: &mut Case) -> Result<Arguments<'static>, Error> {
    let mut call = Arguments::new();
    for one in case.inputs.clone() {
        let (kind, data, bytes) = parts(case, &one);
        // SAFETY: the case's memory outlives the call, and nobody else has it meanwhile.
        let tensor = unsafe {
            Tensor::from_raw(kind, &one.shape, &one.strides, data, bytes, one.byte_offset as u64)
        };
        call = call.input(one.slot, tensor?);
    }
    for one in case.outputs.clone() {
        let (kind, data, bytes) = parts(case, &one);
        // SAFETY: as above; what outputs share with inputs is what the cases are about.
        let tensor = unsafe {
            TensorMut::from_raw(kind, &one.shape, &one.strides, data, bytes, one.byte_offset as u64)
        };
        call = call.output(one.slot, tensor?);
    }
    Ok(call)
}

fn execute(context: &Context, case: &mut Case) -> Result<(), Error> {
    let json = case.json.clone();
    let text = |name: &str| json["operator"][name].as_str().unwrap().to_string();
    let attributes: Vec<_> = json["attributes"].as_array().unwrap().iter().map(attribute).collect();
    let version = json["operator"]["version"].as_i64().unwrap() as i32;
    let op =
        Op::new(context, &text("domain"), &text("type"), version, &attributes, &text("label"))?;
    let mut call = arguments(case)?;
    let session = Session::new(context, "")?;
    let range = |name: &str| json["range"][name].as_i64().unwrap();
    let options = PrepareOptions {
        engine: json["engine"].as_str().map(str::to_string),
        max_batch: range("max_batch"),
        max_query_length: range("max_query_length"),
        max_total_length: range("max_total_length"),
        ..PrepareOptions::default()
    };
    if json["call"] == "plan" {
        let plan = op.prepare(&call, &options)?;
        return plan.execute(&session, &mut call, ExecuteOptions::new());
    }
    let mut binding = Binding::new(&op, &session)?;
    binding.set_tensors(call)?;
    binding.prepare(&options)?;
    binding.execute(ExecuteOptions::new())
}

/// What is printed of one case, and whether all is right.
fn run(context: &Context, path: &Path) -> (String, bool) {
    let mut case = match Case::read(path) {
        Ok(case) => case,
        Err(error) => return (format!("FAILED {} {error}", path.display()), false),
    };
    let (status, message) = match execute(context, &mut case) {
        Ok(()) => (0, String::new()),
        Err(error) => (error.status.code(), error.message),
    };
    match case.check(status, &message) {
        Ok(()) => (format!("ok {} {:016x}", case.name, case.digest(&message)), true),
        Err(wrong) => (format!("FAILED {} {wrong}", case.name), false),
    }
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: golden FOLDER");
        return ExitCode::from(2);
    };
    let options = ContextOptions { ignore_environment: true, ..ContextOptions::default() };
    let context = Library::open().and_then(|library| Context::new(library, options));
    let context = match context {
        Ok(context) => context,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    paths.sort();
    let mut good = !paths.is_empty();
    for path in paths {
        let (line, right) = run(&context, &path);
        println!("{line}");
        good &= right;
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
