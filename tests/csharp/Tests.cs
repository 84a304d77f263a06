using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using AttnC;

/// <summary>The classes of AttnC: results, failures, every function behind them.</summary>
static partial class Tests {
  public static void BindingRuns() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context, "a stream"))
    using (var binding = new Binding(op, session)) {
      var step = new Step();
      using (var arguments = step.Arguments()) binding.SetTensors(arguments);
      Collect();  // the binding holds the arrays, the arguments are gone
      Expect((binding.CaptureSupport().CaptureFlags & 2) != 0, "it needs prepare");
      binding.Prepare();
      binding.Execute();
      Expect(step.IsRight, "the output is right");
      Expect(binding.Describe().Contains("GroupQueryAttention"), "a description");
      Expect(session.PollFaults().Bits == 0, "no fault");
      session.ClearFaults();
    }
  }

  public static void TensorsOneByOne() {
    using (var context = QuietContext())
    using (var binding = new Binding(Attention(context), new Session(context))) {
      var step = new Step();
      binding.SetInput(0, Tensor.Of(step.Qkv, 1, 3, 16));
      binding.SetInput(6, Tensor.Of(step.Total));
      binding.SetOutput(0, Tensor.Of(step.Out, 1, 3, 8));
      Throws<InvalidArgumentException>(() => binding.Prepare());
      binding.SetInput(5, Tensor.Of(step.Last, 1));
      Collect();
      using (var options = new ExecuteOptions { Prepare = true }) binding.Execute(options);
      Expect(step.IsRight, "the output is right");
      binding.SetOutput(0, null);
      Throws<InvalidArgumentException>(() => binding.Execute());
    }
  }

  public static void PlansAreSharedByThreads() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var first = new Step().Arguments())
    using (var plan = op.Prepare(first, new PrepareOptions { MaxTotalLength = 64 })) {
      Expect(plan.Info.MaxTotalLength == 64, "the range");
      Expect(plan.Describe()[0] == '{', "a description");
      int right = 0;
      var threads = Enumerable.Range(0, 4).Select(_ => new Thread(() => {
        var step = new Step();
        using (var session = new Session(context))
        using (var arguments = step.Arguments()) {
          for (int i = 0; i < 100; ++i) plan.Execute(session, arguments);
        }
        if (step.IsRight) Interlocked.Increment(ref right);
      })).ToArray();
      foreach (var thread in threads) thread.Start();
      foreach (var thread in threads) thread.Join();
      Expect(right == 4, "each thread's output is right");
    }
  }

  public static unsafe void SpansAndAddresses() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context)) {
      var step = new Step();
      fixed (float* qkv = step.Qkv, output = step.Out) {
        int* lengths = stackalloc int[2];
        lengths[0] = 2;
        lengths[1] = 3;
        using (var arguments = new Arguments()
                   .Input(0, Tensor.OfSpan(new Span<float>(qkv, 48), 1, 3, 16))
                   .Input(5, Tensor.OfSpan(new Span<int>(lengths, 1), 1))
                   .Input(6, Tensor.At(ElementType.Int32, (IntPtr)(lengths + 1)))
                   .Output(0, Tensor.At(ElementType.Float32, (IntPtr)output, 1, 3, 8)))
        using (var plan = op.Prepare(arguments)) {
          plan.Execute(session, arguments);
        }
      }
      Expect(step.IsRight, "the output is right");
    }
  }

  public static void CachesInPlace() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context)) {
      var keys = new ushort[32];
      var values = new ushort[32];
      var qkv = new ushort[16];
      var output = new ushort[8];
      for (int d = 12; d < 16; ++d) qkv[d] = 0x3c00;  // 1
      using (var arguments = new Arguments()
                 .Input(0, Tensor.Of(ElementType.Float16, qkv, 1, 1, 16))
                 .InPlace(3, 1, Tensor.Of(ElementType.Float16, keys, 1, 1, 8, 4), 7)
                 .InPlace(4, 2, Tensor.Of(ElementType.Float16, values, 1, 1, 8, 4))
                 .Input(5, Tensor.Of(new[] { 0 }, 1)).Input(6, Tensor.Of(new[] { 8 }))
                 .Output(0, Tensor.Of(ElementType.Float16, output, 1, 1, 8)))
      using (var plan = op.Prepare(arguments)) {
        plan.Execute(session, arguments);
      }
      Expect(output.All(one => one == 0x3c00), "the output is the value");
      Expect(values[3] == 0x3c00 && values[4] == 0, "one row of the cache was written");
    }
  }

  public static void ClaimGateAndInference() {
    using (var context = QuietContext())
    using (var op = Attention(context)) {
      Func<ElementType, Support> ask = type => {
        using (var arguments = new Arguments().Input(0, Tensor.Described(type, -1, -1, 16))
                   .Input(5, Tensor.Described(ElementType.Int32, -1))
                   .Input(6, Tensor.Described(ElementType.Int32)).Want(0)) {
          return op.Query(arguments);
        }
      };
      Expect(ask(ElementType.Float16).Supported, "float16 runs");
      var refused = ask(ElementType.Float64);
      Expect(!refused.Supported && refused.Status == Status.InvalidArgument, "float64 does not");
      Expect(refused.Reason.Contains("query"), refused.Reason);
      using (var arguments = new Step().Arguments()) {
        var output = op.InferOutput(arguments, 0);
        Expect(output.Type.Equals(ElementType.Float32) && output.Shape[2] == 8, "its shape");
        Expect(!output.DependsOnValue, "no value decides it");
      }
    }
  }

  public static void FailuresAreExceptions() {
    using (var context = QuietContext()) {
      Throws<UnsupportedException>(() => new Op(context, "com.microsoft", "NoSuchOperator", 1));
      var error = Throws<InvalidArgumentException>(
          () => new Op(context, "com.microsoft", "GroupQueryAttention", 1, null, "layer 7"));
      Expect(error.Status == Status.InvalidArgument && error.NativeCode == 0, "its status");
      Expect(error.Message.Contains("'layer 7'") && !error.Sticky, error.Message);
      using (var odd = new Attributes().Set("num_heads", 2).Set("kv_num_heads", 1)
                 .Set("none", new long[] { 1 }).Set("more", new[] { 0.5 }).Set("scale", 0.5)) {
        Throws<InvalidArgumentException>(
            () => new Op(context, "com.microsoft", "GroupQueryAttention", 1, odd));
      }
      using (var binding = new Binding(Attention(context), new Session(context)))
      using (var arguments = new Step().Arguments()) {
        binding.SetTensors(arguments);
        Throws<NotPreparedException>(() => binding.Execute());
      }
      Throws<AttnException>(() => new Context(new ContextOptions { CudaDevice = 4096 }));
    }
  }

  public static void Introspection() {
    Expect(Library.Version.Split('.').Length == 3, Library.Version);
    Expect(Library.AbiVersion >> 16 == 0, "its major number");
    Expect(Library.Devices()[0].Available, "the CPU");
    var group = Library.Operators().First(one => one.Name == "GroupQueryAttention");
    Expect(group.Inputs[0].Name == "query" && group.Outputs[1].MayAlias == 3, "its slots");
    Expect(group.Attributes.Any(one => one.Name == "num_heads" && one.Required), "its attributes");
    Expect(Library.FaultText(0) == "", "no fault");
    Expect(Library.FaultText(0x7ff).Length > 256, "all faults, longer than the first buffer");
    using (var context = QuietContext()) {
      var info = context.Info;
      Expect(info.Engines.Contains("generic"), "its engines");
      Expect(info.SimdLevels.Contains(info.SimdLevel), "its levels");
    }
  }

  public static void HostHelp() {
    using (var context = QuietContext())
    using (var stream = new DeviceStream(context))
    using (var memory = new DeviceMemory(context, 64)) {
      memory.Write(new float[] { 1, 2, 3 }, stream);
      var back = new float[3];
      memory.Read(back, stream);
      Expect(back[2] == 3, "what was written");
      Throws<ArgumentException>(() => memory.Write(new double[9], stream));
      Throws<UnsupportedException>(() => stream.BeginCapture());
      Throws<UnsupportedException>(() => stream.EndCapture());
    }
  }
}
