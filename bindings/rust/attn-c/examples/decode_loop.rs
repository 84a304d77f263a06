//! A decode loop: a prompt, then single tokens with the cache in place, checked against one call
//! over all tokens on the CPU. With `--cuda` on device 0, where a step is captured once and then
//! replayed, with another length in device memory each time, and gives the bits of steps that are
//! launched one by one. Ends with `demo: OK` and 0, or says what differs and ends with 1.

use std::process::ExitCode;

use attn_c::{
    Arguments, Context, ContextOptions, ElementType, ExecuteOptions, Library, Memory, MemoryKind,
    Op, Plan, PrepareOptions, Result, Session, Stream, Tensor, TensorMut,
};

const HEADS: i64 = 4;
const KV_HEADS: i64 = 2;
const SIZE: i64 = 64;
const WIDTH: i64 = (HEADS + 2 * KV_HEADS) * SIZE;
const PROMPT: i64 = 5;
const TOKENS: i64 = 13;
const CAPACITY: i64 = 32;
const FLOAT: ElementType = ElementType::FLOAT32;

/// Memory of a sequence: its cache, its length, and the tokens of one call.
struct Sequence<'c> {
    qkv: Memory<'c>,
    last: Memory<'c>,
    keys: Memory<'c>,
    values: Memory<'c>,
    out: Memory<'c>,
}

impl<'c> Sequence<'c> {
    fn new(context: &'c Context) -> Result<Self> {
        let memory = |numbers: i64| Memory::new(context, 4 * numbers as u64, MemoryKind::Device);
        Ok(Sequence {
            qkv: memory(TOKENS * WIDTH)?,
            last: memory(1)?,
            keys: memory(KV_HEADS * CAPACITY * SIZE)?,
            values: memory(KV_HEADS * CAPACITY * SIZE)?,
            out: memory(TOKENS * HEADS * SIZE)?,
        })
    }

    /// The tensors of a call over `rows` tokens.
    fn arguments<'a>(&'a mut self, rows: i64, bound: &'a [i32]) -> Result<Arguments<'a>> {
        let cache = [1, KV_HEADS, CAPACITY, SIZE];
        let (keys, values, out) = (&mut self.keys, &mut self.values, &mut self.out);
        Ok(Arguments::new()
            .input(0, Tensor::in_device(&self.qkv, FLOAT, &[1, rows, WIDTH])?)
            .in_place(3, 1, TensorMut::in_device(keys, FLOAT, &cache)?, None)?
            .in_place(4, 2, TensorMut::in_device(values, FLOAT, &cache)?, None)?
            .input(5, Tensor::in_device(&self.last, ElementType::INT32, &[1])?)
            .input(6, Tensor::new(bound, &[1])?)
            .output(0, TensorMut::in_device(out, FLOAT, &[1, rows, HEADS * SIZE])?))
    }

    /// Takes tokens as the next ones, after `past` others.
    fn feed(&mut self, tokens: &[f32], past: i64, stream: &Stream<'_>) -> Result<i64> {
        let rows = tokens.len() as i64 / WIDTH;
        self.qkv.write(tokens, stream)?;
        self.last.write(&[(past + rows - 1) as i32], stream)?;
        Ok(rows)
    }

    fn output(&self, rows: i64, stream: &Stream<'_>) -> Result<Vec<f32>> {
        let mut out = vec![0.0; (rows * HEADS * SIZE) as usize];
        self.out.read(&mut out, stream)?;
        Ok(out)
    }
}

/// What runs the calls of one operator.
struct Runner<'c> {
    op: Op,
    session: Session,
    stream: Stream<'c>,
    bound: [i32; 1],
}

impl<'c> Runner<'c> {
    fn new(context: &'c Context) -> Result<Self> {
        let heads = [("num_heads", HEADS.into()), ("kv_num_heads", KV_HEADS.into())];
        Ok(Runner {
            op: Op::new(context, "com.microsoft", "GroupQueryAttention", 1, &heads, "layer 0")?,
            session: Session::new(context, "decode")?,
            stream: Stream::new(context)?,
            bound: [CAPACITY as i32],
        })
    }

    fn plan(&self, sequence: &mut Sequence<'_>, rows: i64) -> Result<Plan> {
        self.op.prepare(&sequence.arguments(rows, &self.bound)?, &PrepareOptions::default())
    }

    fn launch(&self, plan: &Plan, sequence: &mut Sequence<'_>, rows: i64) -> Result<()> {
        let options = ExecuteOptions::new().on(&self.stream);
        plan.execute(&self.session, &mut sequence.arguments(rows, &self.bound)?, options)
    }

    /// Feeds tokens and runs them at once.
    fn run(&self, sequence: &mut Sequence<'_>, tokens: &[f32], past: i64) -> Result<Vec<f32>> {
        let rows = sequence.feed(tokens, past, &self.stream)?;
        let plan = self.plan(sequence, rows)?;
        self.launch(&plan, sequence, rows)?;
        sequence.output(rows, &self.stream)
    }
}

/// Numbers between -1 and 1, the same each time.
fn tokens() -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..TOKENS * WIDTH).map(|_| next()).collect()
}

/// The prompt, then single tokens by one plan. The first of them is launched, so that the session
/// has the scratch that a capture may use; the others are launched as well, or captured once and
/// replayed.
fn decode(context: &Context, all: &[f32], capture: bool) -> Result<Vec<f32>> {
    let runner = Runner::new(context)?;
    let row = |token: i64| &all[(token * WIDTH) as usize..][..WIDTH as usize];
    let mut sequence = Sequence::new(context)?;
    let mut out = runner.run(&mut sequence, &all[..(PROMPT * WIDTH) as usize], 0)?;
    let step = runner.plan(&mut sequence, 1)?;
    let mut graph = None;
    for token in PROMPT..TOKENS {
        if capture && token == PROMPT + 1 {
            runner.stream.begin_capture()?;
            let launched = runner.launch(&step, &mut sequence, 1);
            let captured = runner.stream.end_capture();
            launched?;
            graph = Some(captured?);
        }
        sequence.feed(row(token), token, &runner.stream)?;
        match &mut graph {
            // SAFETY: the sequence's memory stays, and is read only after the launch has ended.
            Some(graph) => unsafe { graph.launch(&runner.stream)? },
            None => runner.launch(&step, &mut sequence, 1)?,
        }
        out.extend(sequence.output(1, &runner.stream)?);
    }
    Ok(out)
}

/// What differs, in words; `None` is nothing.
fn difference(cuda: bool) -> Result<Option<String>> {
    let library = Library::open()?;
    let all = tokens();
    let cpu = Context::cpu(library)?;
    let expected = Runner::new(&cpu)?.run(&mut Sequence::new(&cpu)?, &all, 0)?;

    let options = ContextOptions { cuda_device: cuda.then_some(0), ..ContextOptions::default() };
    let context = Context::new(library, options)?;
    println!("{} with attn_c {}", context.info()?.device_name, library.version());
    let launched = decode(&context, &all, false)?;
    let replayed = if cuda { Some(decode(&context, &all, true)?) } else { None };
    if replayed.is_some() {
        println!("one step captured, {} replayed", TOKENS - PROMPT - 1);
    }
    let differences = expected.iter().zip(&launched).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, |a: f32, b| if b > a || b.is_nan() { b } else { a });
    let words = format!("largest difference from one call over all tokens on the CPU: {largest:e}");
    if largest.is_nan() || largest >= 1e-5 {
        return Ok(Some(words));
    }
    println!("{TOKENS} tokens, {words}");
    let Some(replayed) = replayed else { return Ok(None) };
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
    let other = launched.iter().zip(&replayed).filter(|pair| !same(*pair)).count();
    if other != 0 {
        return Ok(Some(format!(
            "{other} numbers of the replayed steps are not those of launched ones"
        )));
    }
    println!("replayed steps give the bits of launched ones");
    Ok(None)
}

fn main() -> ExitCode {
    let wrong = match difference(std::env::args().any(|word| word == "--cuda")) {
        Ok(None) => {
            println!("demo: OK");
            return ExitCode::SUCCESS;
        }
        Ok(Some(words)) => words,
        Err(error) => error.to_string(),
    };
    println!("{wrong}\ndemo: FAILED");
    ExitCode::FAILURE
}
