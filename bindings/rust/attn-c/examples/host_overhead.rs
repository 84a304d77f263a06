//! Host time of one prepared call, in microseconds: one head of 64 channels, one key, float32, CPU.
//! Prints the least mean of several runs.

use std::time::Instant;

use attn_c::{
    Arguments, Context, ExecuteOptions, Library, Op, PrepareOptions, Result, Session, Tensor,
    TensorMut,
};

const CALLS: u32 = 200;
const RUNS: u32 = 3000;

fn measure() -> Result<f64> {
    let context = Context::cpu(Library::open()?)?;
    let heads = [("num_heads", 1.into()), ("kv_num_heads", 1.into())];
    let op = Op::new(&context, "com.microsoft", "GroupQueryAttention", 1, &heads, "")?;
    let session = Session::new(&context, "")?;
    let (qkv, last, total) = ([0.5_f32; 192], [0_i32], [1_i32]);
    let mut out = [0.0_f32; 64];
    let mut call = Arguments::new()
        .input(0, Tensor::new(&qkv, &[1, 1, 192])?)
        .input(5, Tensor::new(&last, &[1])?)
        .input(6, Tensor::new(&total, &[1])?)
        .output(0, TensorMut::new(&mut out, &[1, 1, 64])?);
    let plan = op.prepare(&call, &PrepareOptions::default())?;
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let begin = Instant::now();
        for _ in 0..CALLS {
            plan.execute(&session, &mut call, ExecuteOptions::new())?;
        }
        least = least.min(begin.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
    }
    Ok(least)
}

fn main() -> Result<()> {
    println!("{:.3} us a call", measure()?);
    Ok(())
}
