//! Ten thousand rounds of create, bind, execute and drop, and a thousand that fail on the way: the
//! library's counters return to where they were, and the process does not grow.

use attn_c::{
    Arguments, Binding, Context, ExecuteOptions, Library, Op, Session, Status, Tensor, TensorMut,
};

fn resident_bytes() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<i64>().ok());
    pages.unwrap_or(0) * 4096
}

fn round(context: &Context, last: i32) -> attn_c::Result<f32> {
    let heads = [("num_heads", 2.into()), ("kv_num_heads", 1.into())];
    let op = Op::new(context, "com.microsoft", "GroupQueryAttention", 1, &heads, "")?;
    let session = Session::new(context, "")?;
    let (qkv, last, total) = ([0.25_f32; 48], [last], [3_i32]);
    let mut out = [0.0_f32; 24];
    let call = Arguments::new()
        .input(0, Tensor::new(&qkv, &[1, 3, 16])?)
        .input(5, Tensor::new(&last, &[1])?)
        .input(6, Tensor::new(&total, &[])?)
        .output(0, TensorMut::new(&mut out, &[1, 3, 8])?);
    let mut binding = Binding::new(&op, &session)?;
    binding.set_tensors(call)?;
    binding.execute(ExecuteOptions::new().prepare())?;
    drop(binding);
    Ok(out[23])
}

#[test]
fn rounds_leave_nothing_behind() {
    let context = Context::cpu(Library::open().unwrap()).unwrap();
    let mut middle = 0;
    for i in 0..10_000 {
        if i % 10 == 0 {
            assert_eq!(round(&context, 7).unwrap_err().status, Status::InvalidArgument);
        }
        assert_eq!(round(&context, 2).unwrap(), 0.25);
        if i == 5_000 {
            middle = resident_bytes();
        }
    }
    let grown = resident_bytes() - middle;
    assert!(grown < 1 << 20, "grown by {grown} bytes");
    context.trim().unwrap();
    let stats = context.stats().unwrap();
    let live = stats.ops_live + stats.sessions_live + stats.bindings_live + stats.plans_live;
    assert_eq!((live, stats.scratch_bytes, stats.executions), (0, 0, 10_000));
}
