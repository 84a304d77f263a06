//! The safe interface: results, failures, lifetimes, every function behind it.

use std::sync::{Arc, Mutex};

use attn_c::{
    Arguments, Attribute, Binding, Context, ContextOptions, ElementType, Error, ExecuteOptions,
    Library, Memory, MemoryKind, NativeContext, Op, PrepareOptions, Session, Severity, Status,
    Stream, Tensor, TensorMut, F16,
};

fn library() -> Library {
    Library::open().expect("ATTN_C_LIBRARY names the library")
}

fn context() -> Context {
    let options = ContextOptions { ignore_environment: true, ..ContextOptions::default() };
    Context::new(library(), options).unwrap()
}

fn heads() -> Vec<(&'static str, Attribute)> {
    vec![("num_heads", 2.into()), ("kv_num_heads", 1.into())]
}

fn attention(context: &Context) -> Op {
    Op::new(context, "com.microsoft", "GroupQueryAttention", 1, &heads(), "layer 7").unwrap()
}

/// Three tokens, two query heads, one key head of four channels, packed.
struct Step {
    qkv: Vec<f32>,
    out: Vec<f32>,
    last: [i32; 1],
    total: [i32; 1],
}

impl Step {
    fn new() -> Self {
        let mut qkv = vec![0.0; 48];
        for row in 0..3 {
            for d in 0..4 {
                qkv[row * 16 + 12 + d] = (2 * row + d + 1) as f32;
            }
        }
        Step { qkv, out: vec![-1.0; 24], last: [2], total: [3] }
    }

    fn arguments(&mut self) -> Result<Arguments<'_>, Error> {
        Ok(Arguments::new()
            .input(0, Tensor::new(&self.qkv, &[1, 3, 16])?)
            .input(5, Tensor::new(&self.last, &[1])?)
            .input(6, Tensor::new(&self.total, &[])?)
            .output(0, TensorMut::new(&mut self.out, &[1, 3, 8])?))
    }

    fn is_right(&self) -> bool {
        [0, 8, 16, 23].map(|at| self.out[at]) == [1.0, 2.0, 3.0, 6.0]
    }
}

#[test]
fn binding_runs() {
    let context = context();
    let (op, session) = (attention(&context), Session::new(&context, "a stream").unwrap());
    let mut step = Step::new();
    let mut binding = Binding::new(&op, &session).unwrap();
    binding.set_tensors(step.arguments().unwrap()).unwrap();
    let flags = binding.capture_support().unwrap().capture_flags;
    assert_ne!(flags & attn_c::sys::ATTN_CAPTURE_NEEDS_PREPARE as u32, 0);
    binding.prepare(&PrepareOptions::default()).unwrap();
    binding.execute(ExecuteOptions::new()).unwrap();
    assert!(binding.describe().unwrap().contains("GroupQueryAttention"));
    drop(binding);
    assert!(step.is_right());
    assert_eq!(session.poll_faults().unwrap().bits, 0);
    session.clear_faults(None).unwrap();
}

#[test]
fn tensors_one_by_one() {
    let context = context();
    let session = Session::new(&context, "").unwrap();
    let mut step = Step::new();
    let mut binding = Binding::new(&attention(&context), &session).unwrap();
    let run = || ExecuteOptions::new().prepare();
    binding.set_input(0, Some(Tensor::new(&step.qkv, &[1, 3, 16]).unwrap())).unwrap();
    binding.set_input(6, Some(Tensor::new(&step.total, &[]).unwrap())).unwrap();
    binding.set_output(0, Some(TensorMut::new(&mut step.out, &[1, 3, 8]).unwrap())).unwrap();
    assert_eq!(binding.execute(run()).unwrap_err().status, Status::InvalidArgument);
    binding.set_input(5, Some(Tensor::new(&step.last, &[1]).unwrap())).unwrap();
    binding.execute(run()).unwrap();
    binding.set_output(0, None).unwrap();
    assert!(binding.execute(run()).unwrap_err().message.contains("output"));
    drop(binding);
    assert!(step.is_right());
}

#[test]
fn plans_are_shared_by_threads() {
    let context = context();
    let op = attention(&context);
    let options = PrepareOptions { max_total_length: 64, ..PrepareOptions::default() };
    let mut first = Step::new();
    let plan = op.prepare(&first.arguments().unwrap(), &options).unwrap();
    assert_eq!(plan.info().unwrap().max_total_length, 64);
    assert!(plan.describe().unwrap().starts_with('{'));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let session = Session::new(&context, "").unwrap();
                let mut step = Step::new();
                let mut call = step.arguments().unwrap();
                for _ in 0..100 {
                    plan.execute(&session, &mut call, ExecuteOptions::new()).unwrap();
                }
                drop(call);
                assert!(step.is_right());
            });
        }
    });
    drop((context, op)); // the plan keeps what it needs
    assert!(plan.info().is_ok());
}

#[test]
fn caches_in_place() {
    let context = context();
    let (op, session) = (attention(&context), Session::new(&context, "").unwrap());
    let (mut keys, mut values) = (vec![F16(0); 32], vec![F16(0); 32]);
    let mut qkv = vec![F16(0); 16];
    qkv[12..].fill(F16(0x3c00)); // 1
    let (last, total) = ([0_i32], [8_i32]);
    let mut out = vec![F16(0xffff); 8];
    let mut call = Arguments::new()
        .input(0, Tensor::new(&qkv, &[1, 1, 16]).unwrap())
        .in_place(3, 1, TensorMut::new(&mut keys, &[1, 1, 8, 4]).unwrap(), Some(7))
        .unwrap()
        .in_place(4, 2, TensorMut::new(&mut values, &[1, 1, 8, 4]).unwrap(), None)
        .unwrap()
        .input(5, Tensor::new(&last, &[1]).unwrap())
        .input(6, Tensor::new(&total, &[]).unwrap())
        .output(0, TensorMut::new(&mut out, &[1, 1, 8]).unwrap());
    let plan = op.prepare(&call, &PrepareOptions::default()).unwrap();
    plan.execute(&session, &mut call, ExecuteOptions::new()).unwrap();
    assert_eq!(out, [F16(0x3c00); 8]);
    assert_eq!(values[..4], [F16(0x3c00); 4]);
    assert_eq!(values[4..], [F16(0); 28]);
}

#[test]
fn claim_gate_and_inference() {
    let context = context();
    let op = attention(&context);
    let ask = |kind| {
        let call = Arguments::new()
            .input(0, Tensor::shape(kind, &[-1, -1, 16]).unwrap())
            .input(5, Tensor::shape(ElementType::INT32, &[-1]).unwrap())
            .input(6, Tensor::shape(ElementType::INT32, &[]).unwrap())
            .want(0);
        op.query(&call, None).unwrap()
    };
    assert!(ask(ElementType::FLOAT16).supported);
    let refused = ask(ElementType::FLOAT64);
    assert_eq!(refused.status, Some(Status::InvalidArgument));
    assert!(refused.reason.contains("query"), "{}", refused.reason);
    let mut step = Step::new();
    let output = op.infer_output(&step.arguments().unwrap(), 0).unwrap();
    assert_eq!((output.kind, output.shape), (ElementType::FLOAT32, vec![1, 3, 8]));
    assert!(!output.depends_on_value);
}

#[test]
fn failures_are_errors() {
    let context = context();
    let make = |name, attributes: &[(&str, Attribute)]| {
        Op::new(&context, "com.microsoft", name, 1, attributes, "layer 7").err().unwrap()
    };
    assert_eq!(make("NoSuchOperator", &[]).status, Status::Unsupported);
    let error = make("GroupQueryAttention", &[]);
    assert_eq!((error.status, error.status.code()), (Status::InvalidArgument, 1));
    assert!(error.to_string().contains("'layer 7'") && !error.sticky);
    assert!(make("Group\0Query", &[]).message.contains("zero byte"));
    let mut odd = heads();
    odd.push(("none", vec![1_i64, 2].into()));
    odd.push(("numbers", vec![0.5_f32].into()));
    odd.push(("text", "".into()));
    assert!(make("GroupQueryAttention", &odd).message.contains("none"));

    let session = Session::new(&context, "").unwrap();
    let op = attention(&context);
    let mut step = Step::new();
    let mut binding = Binding::new(&op, &session).unwrap();
    binding.set_tensors(step.arguments().unwrap()).unwrap();
    let status = binding.execute(ExecuteOptions::new()).unwrap_err().status;
    assert_eq!(status, Status::NotPrepared);
    // SAFETY: there is nothing at that path.
    let nowhere = unsafe { Library::open_at("no/such/library.so") }.unwrap_err();
    assert_eq!(nowhere.status, Status::Unavailable);
    assert!(nowhere.message.contains("No such file or directory"), "{nowhere}");
}

#[test]
fn rows_lie_in_the_buffer() {
    let mut cache = [0.0_f32; 64];
    let mut rows = |shape: &[i64], rows| {
        let tensor = TensorMut::new(&mut cache, shape).unwrap();
        Arguments::new().in_place(3, 1, tensor, Some(rows)).err()
    };
    assert!(rows(&[1, 1, 8, 8], 0).is_none() && rows(&[1, 1, 8, 8], 8).is_none());
    for (shape, count) in [(&[1_i64, 1, 8, 8][..], 9), (&[1, 1, 8, 8], -1), (&[8, 8], 4)] {
        let error = rows(shape, count).unwrap();
        assert_eq!(error.status, Status::InvalidArgument);
        assert!(error.message.starts_with(&format!("{count} rows of a tensor")), "{error}");
    }
}

#[test]
fn options_reach_the_library() {
    let mut here = 0_u8;
    // SAFETY: the CPU has no such context, and says so.
    let native = unsafe { NativeContext::new((&raw mut here).cast()) };
    let options = ContextOptions { native_context: Some(native), ..ContextOptions::default() };
    let error = Context::new(library(), options).err().unwrap();
    assert!(error.message.contains("native_context is given; the CPU has none"), "{error}");
    let context = context();
    let (op, session) = (attention(&context), Session::new(&context, "").unwrap());
    let mut step = Step::new();
    let mut call = step.arguments().unwrap();
    let plan = op.prepare(&call, &PrepareOptions::default()).unwrap();
    // SAFETY: nothing is captured on the CPU.
    let eager = unsafe { ExecuteOptions::new().eager() };
    plan.execute(&session, &mut call, eager).unwrap();
    drop(call);
    assert!(step.is_right());
}

#[test]
fn tensors_must_lie_in_their_slices() {
    let data = [0.0_f32; 8];
    assert!(Tensor::new(&data, &[1; 9]).is_err());
    assert!(Tensor::new(&data, &[-1, 8]).is_err());
    assert!(Tensor::new(&data, &[1 << 40, 1 << 40]).is_err());
    assert!(Tensor::strided(&data, &[8], &[1, 1], 0).is_err());
    assert!(Tensor::new(&data[..0], &[1, 1]).is_err());
    assert!(Tensor::new(&data[..0], &[0, 8]).is_ok());
    let error = Tensor::new(&data, &[8, -2]).unwrap_err();
    assert!(error.message.contains("[8, -2]") && error.message.contains("-2 is none"), "{error}");
    // What would wrap to element 0, or leave the slice.
    for first in [9, 1 << 62, usize::MAX / 2, usize::MAX] {
        let error = Tensor::strided(&data, &[1], &[1], first).unwrap_err();
        assert!(error.message.contains(&format!("the index {first}")), "{error}");
        let mut data = [0.0_f32; 8];
        assert!(TensorMut::strided(&mut data, &[1], &[1], first).is_err());
    }
    // Sizes beyond 32 bits are sizes; that the slice is too small, the library says.
    let context = context();
    let (op, session) = (attention(&context), Session::new(&context, "").unwrap());
    let mut binding = Binding::new(&op, &session).unwrap();
    let long = Tensor::new(&data, &[1, 5_000_000_000, 16]).unwrap();
    let error = binding.set_input(0, Some(long)).unwrap_err();
    assert!(error.message.contains("reach bytes 0 to 320000000000"), "{error}");
    // The library knows the slice's size: one element too many, and one before the first.
    for (strides, first) in [(vec![48, 16, 1], 1), (vec![48, -16, 1], 31)] {
        let mut step = Step::new();
        let query = Tensor::strided(&step.qkv, &[1, 3, 16], &strides, first).unwrap();
        let call = Arguments::new()
            .input(0, query)
            .input(5, Tensor::new(&step.last, &[1]).unwrap())
            .input(6, Tensor::new(&step.total, &[]).unwrap())
            .output(0, TensorMut::new(&mut step.out, &[1, 3, 8]).unwrap());
        let mut binding = Binding::new(&op, &session).unwrap();
        let error = binding.set_tensors(call).unwrap_err();
        assert!(error.message.contains("query"), "{error}");
    }
}

#[test]
fn introspection() {
    let library = library();
    assert_eq!(library.version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(library.abi_version(), attn_c::sys::ATTN_ABI_VERSION as u32);
    assert!(library.devices().unwrap()[0].available);
    let operators = library.operators().unwrap();
    let group = operators.iter().find(|one| one.name == "GroupQueryAttention").unwrap();
    assert_eq!(group.inputs[0].name, "query");
    assert_eq!(group.outputs[1].may_alias, Some(3));
    assert!(group.attributes.iter().any(|one| one.name == "num_heads" && one.required));
    assert_eq!(library.fault_text(0).unwrap(), "");
    let all = library.fault_text(0x7ff).unwrap();
    assert!(all.len() > 256 && all.contains("rotary table"), "{all}");
    let info = context().info().unwrap();
    assert!(info.engines.iter().any(|name| name == "generic"));
    assert!(info.simd_levels.contains(&info.simd_level));
    assert!(group.version_first == 1 && group.version_last >= 1);
    let texts = [&info.driver_version, &info.driver_path, &info.nvrtc_version, &info.nvrtc_path];
    assert!(texts.iter().all(|text| text.is_empty()), "the CPU has neither: {texts:?}");
}

#[test]
fn log_reaches_the_closure() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let options = |level: Option<String>| {
        let kept = lines.clone();
        ContextOptions {
            ignore_environment: true,
            simd_level: level,
            minimum_severity: Some(Severity::Debug),
            log: Some(Box::new(move |_, line| kept.lock().unwrap().push(line.to_string()))),
            ..ContextOptions::default()
        }
    };
    let context = Context::new(library(), options(None)).unwrap();
    attention(&context)
        .prepare(&Step::new().arguments().unwrap(), &PrepareOptions::default())
        .unwrap();
    context.trim().unwrap();
    assert!(!lines.lock().unwrap().is_empty());
    assert!(Context::new(library(), options(Some("no such level".into()))).is_err());
    drop(context);
    assert_eq!(Arc::strong_count(&lines), 1, "closures are dropped with their contexts");
}

#[test]
fn host_help() {
    let context = context();
    let stream = Stream::new(&context).unwrap();
    let mut memory = Memory::new(&context, 64, MemoryKind::Device).unwrap();
    memory.write(&[1.0_f32, 2.0, 3.0], &stream).unwrap();
    let mut back = [0.0_f32; 3];
    memory.read(&mut back, &stream).unwrap();
    assert_eq!(back, [1.0, 2.0, 3.0]);
    assert!(memory.write(&[0.0_f64; 9], &stream).unwrap_err().message.contains("72 bytes"));
    let other = self::context();
    let foreign = Stream::new(&other).unwrap();
    for error in [memory.write(&[1.0_f32], &foreign), memory.read(&mut back, &foreign)] {
        assert!(error.unwrap_err().message.contains("another context"));
    }
    assert!(Tensor::in_device(&memory, ElementType::FLOAT32, &[16]).is_ok());
    assert!(TensorMut::in_device(&mut memory, ElementType::FLOAT32, &[16]).is_ok());
    assert_eq!(stream.begin_capture().unwrap_err().status, Status::Unsupported);
    assert_eq!(stream.end_capture().err().unwrap().status, Status::Unsupported);
}
