using System;
using System.Linq;
using System.Threading;
using AttnC;

/// <summary>What was disposed says so wherever it is used; the order does not matter, nor does what
/// other threads do meanwhile.</summary>
static partial class Tests {
  public static void DisposedArgumentsSaySo() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var binding = new Binding(op, session))
    using (var good = new Step().Arguments())
    using (var plan = op.Prepare(good))
    using (var held = new Binding(op, session)) {
      var arguments = new Step().Arguments();
      held.SetTensors(arguments);  // what something holds is disposed all the same
      arguments.Dispose();
      arguments.Dispose();
      var tensor = Tensor.Of(new float[48], 1, 3, 16);
      Gone(() => arguments.Input(0, tensor), () => arguments.Output(0, tensor),
           () => arguments.InPlace(3, 1, tensor), () => arguments.Want(0),
           () => op.Query(arguments), () => op.InferOutput(arguments, 0),
           () => op.Prepare(arguments), () => plan.Execute(session, arguments),
           () => binding.SetTensors(arguments));
      Throws<InvalidArgumentException>(() => binding.Prepare());  // nothing is bound
    }
  }

  public static void DisposedAttributesSaySo() {
    using (var context = QuietContext()) {
      var heads = new Attributes().Set("num_heads", 2).Set("kv_num_heads", 1);
      heads.Dispose();
      heads.Dispose();
      Gone(() => heads.Set("a", 1L), () => heads.Set("a", 0.5), () => heads.Set("a", "b"),
           () => heads.Set("a", new long[1]), () => heads.Set("a", new double[1]),
           () => new Op(context, "com.microsoft", "GroupQueryAttention", 1, heads));
    }
  }

  public static void DisposedOptionsSaySo() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var stream = new DeviceStream(context))
    using (var memory = new DeviceMemory(context, 64))
    using (var binding = new Binding(op, session))
    using (var arguments = new Step().Arguments())
    using (var plan = op.Prepare(arguments)) {
      var options = new ExecuteOptions();
      options.SetStream(stream);
      options.SetWorkspace(memory);
      options.Dispose();
      options.Dispose();
      binding.SetTensors(arguments);
      binding.Prepare();
      Gone(() => options.Prepare = true, () => options.BakeHostValues = true,
           () => options.Eager = true, () => options.Stream = IntPtr.Zero,
           () => options.SetStream(stream), () => options.SetWorkspace(IntPtr.Zero, 0),
           () => options.SetWorkspace(memory), () => binding.Execute(options),
           () => plan.Execute(session, arguments, options));
    }
  }

  public static void DisposedMemoryAndStreamsSaySo() {
    using (var context = QuietContext())
    using (var session = new Session(context))
    using (var good = new DeviceMemory(context, 64))
    using (var goodStream = new DeviceStream(context))
    using (var options = new ExecuteOptions())
    using (var arguments = new Arguments()) {
      var memory = new DeviceMemory(context, 64);
      var stream = new DeviceStream(context);
      var tensor = memory.Tensor(ElementType.Float32, 16);
      memory.Dispose();
      stream.Dispose();
      Gone(() => memory.Address.ToString(), () => memory.Tensor(ElementType.Float32, 1),
           () => memory.Write(new float[1], goodStream),
           () => memory.Read(new float[1], goodStream),
           () => options.SetWorkspace(memory), () => arguments.Input(0, tensor),
           () => arguments.Output(0, tensor), () => arguments.InPlace(3, 1, tensor));
      Gone(() => stream.Address.ToString(), () => stream.Synchronize(), () => stream.BeginCapture(),
           () => stream.EndCapture(), () => options.SetStream(stream),
           () => session.ClearFaults(stream), () => good.Write(new float[1], stream),
           () => good.Read(new float[1], stream));
      Expect(memory.Bytes == 64, "its size is known still");
    }
  }

  public static void DisposedObjectsSaySo() {
    var context = QuietContext();
    var op = Attention(context);
    var session = new Session(context);
    var binding = new Binding(op, session);
    var other = new Session(context);
    using (var memory = new DeviceMemory(context, 64))  // they hold the native context
    using (var arguments = new Step().Arguments()) {
      var plan = op.Prepare(arguments);
      binding.SetTensors(arguments);
      plan.Dispose();
      session.Dispose();
      binding.Dispose();
      op.Dispose();
      context.Dispose();
      Gone(() => plan.Info.ToString(), () => plan.Describe(), () => plan.Execute(other, arguments));
      Gone(() => session.PollFaults(), () => session.ClearFaults(),
           () => new Binding(op, session));
      Gone(() => binding.SetTensors(arguments), () => binding.SetInput(0, null),
           () => binding.SetOutput(0, null), () => binding.Prepare(), () => binding.Execute(),
           () => binding.CaptureSupport(), () => binding.Describe());
      Gone(() => op.Query(arguments), () => op.InferOutput(arguments, 0),
           () => op.Prepare(arguments), () => new Binding(op, other));
      Gone(() => context.Info.ToString(), () => context.Stats.ToString(), () => context.Trim(),
           () => new Session(context), () => Attention(context),
           () => new DeviceMemory(context, 1), () => new DeviceStream(context));
    }
    other.Dispose();
  }

  public static void TheContextMayGoFirst() {
    foreach (bool memoryFirst in new[] { true, false }) {
      var context = QuietContext();
      var memory = new DeviceMemory(context, 64);
      var stream = new DeviceStream(context);
      context.Dispose();
      Collect();
      memory.Write(new float[] { 1, 2, 3 }, stream);
      var back = new float[3];
      memory.Read(back, stream);
      stream.Synchronize();
      Expect(back[2] == 3, "what was written");
      if (memoryFirst) memory.Dispose();
      stream.Dispose();
      memory.Dispose();
    }
  }

  public static void FailedCallsHoldNothing() {
    using (var context = QuietContext()) {
      var session = new Session(context);
      var other = new Session(context);
      using (var kept = Attention(context))
      using (var arguments = new Step().Arguments()) {
        var plan = kept.Prepare(arguments);
        session.Dispose();
        Gone(() => plan.Execute(session, arguments));
        plan.Dispose();
        arguments.Dispose();
        Gone(() => plan.Execute(other, arguments));
      }
      for (int i = 0; i < 10; ++i) {
        var op = Attention(context);
        Gone(() => new Binding(op, session));
        op.Dispose();
      }
      other.Dispose();
      context.Trim();
      var stats = context.Stats;
      Expect(stats.OpsLive + stats.PlansLive + stats.SessionsLive + stats.BindingsLive == 0,
             stats.OpsLive + " ops, " + stats.PlansLive + " plans, " + stats.SessionsLive +
                 " sessions live");
    }
  }

  /// <summary>Runs a step in small arrays, of which the collector moves what is not pinned, and in
  /// the middle of the call lets another thread dispose what the call uses.</summary>
  private static void DisposeWithin(Func<Context, Decode, Action[]> callAndDispose) {
    var expected = Decode.Result(new ContextOptions());
    var threads = new Threads();
    var within = new ManualResetEventSlim();
    var disposed = new ManualResetEventSlim();
    threads.Loop = (count, task) => {
      within.Set();
      disposed.Wait();
      for (int i = 0; i < count; ++i) task(i);
    };
    using (var context = new Context(new ContextOptions { IgnoreEnvironment = true,
                                                          Executor = threads })) {
      var step = new Decode();
      var actions = callAndDispose(context, step);
      Exception failure = null;
      var thread = new Thread(() => {
        try {
          actions[0]();
        } catch (Exception error) {
          failure = error;
        }
      });
      thread.Start();
      Expect(within.Wait(60000), "the call reaches its tasks");
      actions[1]();
      for (int i = 0; i < 3; ++i) {
        Collect();
        // What was freed or moved away from is written over.
        for (int k = 0; k < 1000; ++k) GC.KeepAlive(Enumerable.Repeat(1e30f, 1024).ToArray());
      }
      disposed.Set();
      thread.Join();
      Expect(failure == null, "the call ends well: " + failure);
      Expect(step.Out.SequenceEqual(expected), "its output is right");
    }
  }

  public static void BindingsMayBeDisposedWithinExecute() {
    DisposeWithin((context, step) => {
      var binding = new Binding(Attention(context), new Session(context));
      using (var call = step.Call()) binding.SetTensors(call);
      binding.Prepare();
      return new Action[] { () => binding.Execute(), () => binding.Dispose() };
    });
  }

  public static void BindingsInUseAreBusy() {
    DisposeWithin((context, step) => {
      var op = Attention(context);
      var session = new Session(context);
      var binding = new Binding(op, session);
      using (var call = step.Call()) binding.SetTensors(call);
      binding.Prepare();
      return new Action[] { () => binding.Execute(), () => {
        using (var other = new Decode().Call())
        using (var plan = op.Prepare(other)) {
          Throws<BusyException>(() => binding.SetTensors(other));
          Throws<BusyException>(() => plan.Execute(session, other));
        }
        Throws<BusyException>(() => binding.SetInput(0, null));
        Throws<BusyException>(() => binding.SetOutput(0, null));
        Throws<BusyException>(() => binding.Prepare());
        Throws<BusyException>(() => binding.Execute());
      } };
    });
  }

  public static void ArgumentsMayBeDisposedWithinExecute() {
    DisposeWithin((context, step) => {
      var call = step.Call();
      var session = new Session(context);
      var options = new ExecuteOptions();
      var plan = Attention(context).Prepare(call);
      return new Action[] { () => plan.Execute(session, call, options), () => {
        plan.Dispose();
        session.Dispose();
        call.Dispose();
        options.Dispose();
      } };
    });
  }

  public static void ManyThreadsMayDispose() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var first = new Step().Arguments())
    using (var plan = op.Prepare(first)) {
      for (int round = 0; round < 500; ++round) {
        var arguments = new Step().Arguments();
        var binding = new Binding(op, session);
        binding.SetTensors(arguments);
        var memory = new DeviceMemory(context, 64);
        var options = new ExecuteOptions();
        options.SetWorkspace(memory);
        var other = new Step().Arguments().Input(1, memory.Tensor(ElementType.Float32, 16));
        var begin = new ManualResetEventSlim();
        int failures = 0;
        var threads = Enumerable.Range(0, 4).Select(_ => new Thread(() => {
          begin.Wait();
          try {
            foreach (var one in new IDisposable[] { binding, memory, options, other }) {
              one.Dispose();
            }
          } catch (Exception) {
            Interlocked.Increment(ref failures);
          }
        })).ToArray();
        foreach (var thread in threads) thread.Start();
        begin.Set();
        foreach (var thread in threads) thread.Join();
        Expect(failures == 0, "no Dispose fails");
        plan.Execute(session, arguments);  // nobody disposed these
        arguments.Dispose();
      }
    }
  }
}
