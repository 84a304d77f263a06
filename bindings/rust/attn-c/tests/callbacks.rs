//! Allocators and executors: used, dropped with their context, and allowed to fail.

use std::alloc::{alloc, dealloc, Layout};
use std::collections::HashMap;
use std::os::raw::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use attn_c::{
    Allocator, Arguments, Context, ContextOptions, Executor, Library, MemoryKind, Op,
    PrepareOptions, Result, Session, Severity, Status, Tensor, TensorMut,
};

const BATCH: usize = 8;
const KEYS: usize = 256;
const SIZE: usize = 64;

fn open(options: ContextOptions) -> Result<Context> {
    let options = ContextOptions { ignore_environment: true, ..options };
    Context::new(Library::open().expect("ATTN_C_LIBRARY names the library"), options)
}

fn attention(context: &Context) -> Op {
    let heads = [("num_heads", 2.into()), ("kv_num_heads", 1.into())];
    Op::new(context, "com.microsoft", "GroupQueryAttention", 1, &heads, "layer 7").unwrap()
}

/// One token of eight sequences on top of 255, large enough for several threads.
fn decode(op: &Op, session: &Session) -> Result<Vec<f32>> {
    let mut state = 7_u32;
    let mut numbers = |count: usize| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    };
    let query = numbers(BATCH * 4 * SIZE);
    let (mut keys, mut values) = (numbers(BATCH * KEYS * SIZE), numbers(BATCH * KEYS * SIZE));
    let cache = [BATCH as i64, 1, KEYS as i64, SIZE as i64];
    let (last, total) = ([KEYS as i32 - 1; BATCH], [KEYS as i32]);
    let mut out = vec![0.0; BATCH * 2 * SIZE];
    let mut call = Arguments::new()
        .input(0, Tensor::new(&query, &[BATCH as i64, 1, 4 * SIZE as i64])?)
        .in_place(3, 1, TensorMut::new(&mut keys, &cache)?, None)?
        .in_place(4, 2, TensorMut::new(&mut values, &cache)?, None)?
        .input(5, Tensor::new(&last, &[BATCH as i64])?)
        .input(6, Tensor::new(&total, &[])?)
        .output(0, TensorMut::new(&mut out, &[BATCH as i64, 1, 2 * SIZE as i64])?);
    let plan = op.prepare(&call, &PrepareOptions::default())?;
    plan.execute(session, &mut call, attn_c::ExecuteOptions::new())?;
    drop(call);
    Ok(out)
}

fn result_of(options: ContextOptions) -> Vec<f32> {
    let context = open(options).unwrap();
    decode(&attention(&context), &Session::new(&context, "").unwrap()).unwrap()
}

/// What an allocator gave and has not got back.
#[derive(Default)]
struct Given {
    layouts: Mutex<HashMap<usize, Layout>>,
    allocations: AtomicUsize,
    fails: AtomicBool,
}

impl Given {
    fn bytes(&self) -> usize {
        self.layouts.lock().unwrap().values().map(|layout| layout.size()).sum()
    }
}

struct Counting(Arc<Given>);

// SAFETY: the memory is the global allocator's, by its own rules.
unsafe impl Allocator for Counting {
    fn allocate(
        &self,
        kind: MemoryKind,
        bytes: u64,
        alignment: u64,
        stream: *mut c_void,
    ) -> *mut c_void {
        assert!(!self.0.fails.load(Ordering::Relaxed), "no memory today");
        assert!(kind == MemoryKind::Host && stream.is_null());
        let layout = Layout::from_size_align(bytes as usize, alignment as usize).unwrap();
        // SAFETY: nobody asks for nothing.
        let memory = unsafe { alloc(layout) };
        self.0.layouts.lock().unwrap().insert(memory as usize, layout);
        self.0.allocations.fetch_add(1, Ordering::Relaxed);
        memory.cast()
    }

    unsafe fn deallocate(
        &self,
        _kind: MemoryKind,
        memory: *mut c_void,
        bytes: u64,
        _stream: *mut c_void,
    ) {
        let layout = self.0.layouts.lock().unwrap().remove(&(memory as usize)).unwrap();
        assert_eq!(layout.size(), bytes as usize);
        // SAFETY: it is what `allocate` gave, with its layout.
        unsafe { dealloc(memory.cast(), layout) };
        assert!(!self.0.fails.load(Ordering::Relaxed), "it is gone all the same");
    }
}

#[test]
fn allocator_gives_scratch() {
    let given = Arc::new(Given::default());
    let options = ContextOptions {
        allocator: Some(Box::new(Counting(given.clone()))),
        ..ContextOptions::default()
    };
    let context = open(options).unwrap();
    let (op, session) = (attention(&context), Session::new(&context, "").unwrap());
    assert_eq!(decode(&op, &session).unwrap(), result_of(ContextOptions::default()));
    let allocations = given.allocations.load(Ordering::Relaxed);
    assert!(allocations > 0 && given.bytes() > 0, "scratch is the allocator's");
    decode(&op, &session).unwrap();
    assert_eq!(given.allocations.load(Ordering::Relaxed), allocations, "and is kept");
    assert_eq!(context.stats().unwrap().scratch_bytes, given.bytes() as u64);

    given.fails.store(true, Ordering::Relaxed);
    context.trim().unwrap();
    assert_eq!(given.bytes(), 0, "what is idle goes back");
    assert_eq!(decode(&op, &session).unwrap_err().status, Status::OutOfMemory);
    given.fails.store(false, Ordering::Relaxed);
    decode(&op, &session).unwrap();
    drop((op, session, context));
    assert_eq!(given.bytes(), 0, "everything went back");
    assert_eq!(Arc::strong_count(&given), 1, "the allocator was dropped");
}

type Loop = fn(usize, &(dyn Fn(usize) + Sync));

struct Threads {
    concurrency: i32,
    run: Loop,
    loops: Arc<AtomicUsize>,
}

impl Executor for Threads {
    fn concurrency(&self) -> i32 {
        self.concurrency
    }

    fn parallel_for(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        self.loops.fetch_add(1, Ordering::Relaxed);
        (self.run)(count, task);
    }
}

fn on_threads(count: usize, task: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        for index in 0..count {
            scope.spawn(move || task(index));
        }
    });
}

fn with(concurrency: i32, run: Loop) -> (ContextOptions, Arc<AtomicUsize>) {
    let loops = Arc::new(AtomicUsize::new(0));
    let executor = Threads { concurrency, run, loops: loops.clone() };
    let options =
        ContextOptions { executor: Some(Box::new(executor)), ..ContextOptions::default() };
    (options, loops)
}

#[test]
fn executors_run_the_tasks_or_fail() {
    let expected = result_of(ContextOptions { thread_count: 1, ..ContextOptions::default() });
    let (options, _) = with(3, on_threads);
    assert_eq!(open(options).unwrap().info().unwrap().thread_count, 3);
    let runs: [Loop; 5] = [
        on_threads,
        |_, _| {}, // leaves everything out
        |_, _| panic!("no threads today"),
        |_, task| {
            task(0);
            panic!("half way");
        },
        |count, task| {
            for index in 0..=count {
                task(index);
                task(index);
            }
        },
    ];
    for run in runs {
        let (options, loops) = with(3, run);
        assert_eq!(result_of(options), expected, "the same bits");
        assert!(loops.load(Ordering::Relaxed) > 0, "it was asked");
        assert_eq!(Arc::strong_count(&loops), 1, "it was dropped with its context");
    }
    let (mut options, loops) = with(3, on_threads);
    options.simd_level = Some("no such level".into());
    assert_eq!(open(options).err().unwrap().status, Status::InvalidArgument);
    assert_eq!(Arc::strong_count(&loops), 1, "it was dropped without a context");
}

#[test]
fn a_log_may_panic() {
    let lines = Arc::new(AtomicUsize::new(0));
    let heard = lines.clone();
    let context = open(ContextOptions {
        minimum_severity: Some(Severity::Debug),
        log: Some(Box::new(move |_, line| {
            heard.fetch_add(1, Ordering::Relaxed);
            panic!("nobody hears of {line}");
        })),
        ..ContextOptions::default()
    })
    .unwrap();
    decode(&attention(&context), &Session::new(&context, "").unwrap()).unwrap();
    assert!(lines.load(Ordering::Relaxed) > 0);
}

/// What a panic may carry: something that panics again when it is dropped, and so on.
struct Bomb(u32, Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1, self.1.clone()));
        }
    }
}

struct Bombs(Arc<AtomicUsize>);

impl Bombs {
    fn explode(&self) -> ! {
        std::panic::panic_any(Bomb(2, self.0.clone()))
    }
}

impl Executor for Bombs {
    fn concurrency(&self) -> i32 {
        3
    }

    fn parallel_for(&self, _count: usize, _task: &(dyn Fn(usize) + Sync)) {
        self.explode();
    }
}

// SAFETY: it never gives memory.
unsafe impl Allocator for Bombs {
    fn allocate(&self, _: MemoryKind, _: u64, _: u64, _: *mut c_void) -> *mut c_void {
        self.explode();
    }

    unsafe fn deallocate(&self, _: MemoryKind, _: *mut c_void, _: u64, _: *mut c_void) {
        self.explode();
    }
}

#[test]
fn what_a_panic_carries_may_panic_too() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let bombs = || Bombs(dropped.clone());
    let exploded = || dropped.swap(0, Ordering::Relaxed) > 0;
    let expected = result_of(ContextOptions::default());

    let log = bombs();
    let options = ContextOptions {
        minimum_severity: Some(Severity::Debug),
        log: Some(Box::new(move |_, _| log.explode())),
        ..ContextOptions::default()
    };
    assert!(result_of(options) == expected && exploded());

    let executor = Some(Box::new(bombs()) as Box<dyn Executor>);
    let options = ContextOptions { executor, ..ContextOptions::default() };
    assert!(result_of(options) == expected && exploded());

    let allocator = Some(Box::new(bombs()) as Box<dyn Allocator>);
    let context = open(ContextOptions { allocator, ..ContextOptions::default() }).unwrap();
    let session = Session::new(&context, "").unwrap();
    let error = decode(&attention(&context), &session).unwrap_err();
    assert!(error.status == Status::OutOfMemory && exploded());

    let captured = Bomb(2, dropped.clone());
    let log: attn_c::Log = Box::new(move |_, _| {
        let _kept = &captured;
    });
    drop(open(ContextOptions { log: Some(log), ..ContextOptions::default() }).unwrap());
    assert!(exploded(), "the closure went with its context");
}
