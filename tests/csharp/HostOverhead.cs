using System;
using System.Diagnostics;
using AttnC;

/// <summary>Host time of one prepared call, in microseconds: one head of 64 channels, one key,
/// float32, CPU. Prints the least mean of several runs.</summary>
static class HostOverhead {
  static void Main() {
    const int kCalls = 200, kRuns = 3000;
    using (var context = new Context())
    using (var heads = new Attributes().Set("num_heads", 1).Set("kv_num_heads", 1))
    using (var op = new Op(context, "com.microsoft", "GroupQueryAttention", 1, heads))
    using (var session = new Session(context))
    using (var arguments = new Arguments().Input(0, Tensor.Of(new float[192], 1, 1, 192))
               .Input(5, Tensor.Of(new[] { 0 }, 1)).Input(6, Tensor.Of(new[] { 1 }, 1))
               .Output(0, Tensor.Of(new float[64], 1, 1, 64)))
    using (var plan = op.Prepare(arguments)) {
      double least = double.PositiveInfinity;
      for (int run = 0; run < kRuns; ++run) {
        var watch = Stopwatch.StartNew();
        for (int i = 0; i < kCalls; ++i) plan.Execute(session, arguments);
        least = Math.Min(least, watch.Elapsed.TotalMilliseconds * 1000 / kCalls);
      }
      Console.WriteLine(least.ToString("f3") + " us a call");
    }
  }
}
