using System;
using System.Collections.Generic;
using AttnC;

/// <summary>Lifetimes and failures on a CUDA device, whose driver is a fake that counts what is
/// out. It computes nothing.</summary>
static partial class Tests {
  private static Context FakeContext() {
    return new Context(new ContextOptions { CudaDevice = 0, NoDiskCache = true });
  }

  /// <summary>The arguments of a decode step, in device memory that nobody else has.</summary>
  private static Arguments DeviceStep(Context context) {
    Func<ElementType, int, long[], Tensor> fresh = (type, bytes, shape) =>
        new DeviceMemory(context, bytes).Tensor(type, shape);
    var half = ElementType.Float16;
    return new Arguments().Input(0, fresh(half, 512, new long[] { 1, 1, 256 }))
        .InPlace(3, 1, fresh(half, 2048, new long[] { 1, 1, 16, 64 }))
        .InPlace(4, 2, fresh(half, 2048, new long[] { 1, 1, 16, 64 }))
        .Input(5, fresh(ElementType.Int32, 4, new long[] { 1 }))
        .Input(6, Tensor.Of(new[] { 16 }))
        .Output(0, fresh(half, 256, new long[] { 1, 1, 128 }));
  }

  private static void ExpectAllBack(string when) {
    for (int i = 0; i < 20 && FakeDriver.Balance != 0; ++i) Collect();
    Expect(FakeDriver.Balance == 0, when + ": " + FakeDriver.Balance + " things are out, of them " +
                                        FakeDriver.DeviceMemory + " of device memory, " +
                                        FakeDriver.Streams + " streams");
  }

  public static void TheFakeIsTheOneThatCounts() {
    Expect(FakeDriver.IsKnown, "the layout of its state");
    using (var context = FakeContext())
    using (var stream = new DeviceStream(context)) {
      int before = FakeDriver.DeviceMemory, streams = FakeDriver.Streams;
      using (new DeviceMemory(context, 64))
      using (new DeviceStream(context)) {
        Expect(FakeDriver.DeviceMemory == before + 1, "memory counts");
        Expect(FakeDriver.Streams == streams + 1, "streams count");
      }
      int pinned = FakeDriver.HostMemory;
      using (var memory = new DeviceMemory(context, 64, MemoryKind.Pinned)) {
        Expect(FakeDriver.HostMemory == pinned + 1, "pinned memory");
        memory.Write(new[] { 1, 2 }, stream);
      }
      Expect(FakeDriver.HostMemory == pinned, "and back");
    }
    ExpectAllBack("all disposed");
  }

  public static void TheContextMayGoBeforeMemoryAndStreams() {
    var context = FakeContext();
    var memory = new DeviceMemory(context, 64);
    var stream = new DeviceStream(context);
    stream.BeginCapture();
    var graph = stream.EndCapture();
    context.Dispose();
    memory.Write(new float[16], stream);
    graph.Launch(stream);
    Gone(() => new DeviceMemory(context, 64), () => new DeviceStream(context));
    memory.Dispose();
    stream.Dispose();
    Gone(() => stream.Address.ToString(), () => graph.Launch(stream));
    Expect(FakeDriver.Executables == 1, "the graph lives");
    graph.Dispose();
    Expect(FakeDriver.Balance == 0, "everything is back: " + FakeDriver.Balance);
  }

  public static void BindingsAndArgumentsHoldDeviceMemory() {
    using (var context = FakeContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var stream = new DeviceStream(context))
    using (var options = new ExecuteOptions { Prepare = true }) {
      options.SetStream(stream);
      int before = FakeDriver.DeviceMemory;
      var binding = new Binding(op, session);
      Arguments arguments = null;
      Away(() => {
        using (var step = DeviceStep(context)) binding.SetTensors(step);
        arguments = DeviceStep(context);
      });
      for (int i = 0; i < 3; ++i) Collect();
      Expect(FakeDriver.DeviceMemory == before + 10, "ten pieces of memory are in use");
      binding.Execute(options);
      options.Prepare = false;  // is for bindings
      using (var plan = op.Prepare(arguments)) plan.Execute(session, arguments, options);
      int scratch = FakeDriver.DeviceMemory - before - 10;
      arguments.Dispose();
      binding.SetInput(0, null);
      for (int i = 0; i < 20 && FakeDriver.DeviceMemory > before + scratch + 4; ++i) Collect();
      Expect(FakeDriver.DeviceMemory == before + scratch + 4, "what is bound is held, no more");
      binding.Dispose();
      for (int i = 0; i < 20 && FakeDriver.DeviceMemory > before + scratch; ++i) Collect();
      Expect(FakeDriver.DeviceMemory == before + scratch, "none is held");
    }
    ExpectAllBack("the context is gone");
  }

  public static void OptionsHoldStreamsAndWorkspaces() {
    using (var context = FakeContext()) {
      int memory = FakeDriver.DeviceMemory, streams = FakeDriver.Streams;
      var options = new ExecuteOptions();
      Away(() => {
        options.SetStream(new DeviceStream(context));
        options.SetWorkspace(new DeviceMemory(context, 64));
      });
      for (int i = 0; i < 3; ++i) Collect();
      Expect(FakeDriver.Streams == streams + 1 && FakeDriver.DeviceMemory == memory + 1, "held");
      options.Stream = IntPtr.Zero;
      for (int i = 0; i < 20 && FakeDriver.Streams != streams; ++i) Collect();
      Expect(FakeDriver.Streams == streams, "a stream that was replaced is let go");
      options.Dispose();
      for (int i = 0; i < 20 && FakeDriver.DeviceMemory != memory; ++i) Collect();
      Expect(FakeDriver.DeviceMemory == memory, "a workspace goes with the options");
    }
    ExpectAllBack("all disposed");
  }

  /// <summary>Everything that there is, released by Dispose, context first, or by finalisers.
  /// </summary>
  private static void DeviceRound(bool dispose, bool fail) {
    var context = FakeContext();
    var stream = new DeviceStream(context);
    var op = Attention(context);
    var session = new Session(context);
    var arguments = DeviceStep(context);
    var plan = op.Prepare(arguments);
    var options = new ExecuteOptions();
    options.SetStream(stream);
    plan.Execute(session, arguments, options);
    stream.BeginCapture();
    plan.Execute(session, arguments, options);
    var graph = stream.EndCapture();
    graph.Launch(stream);
    var binding = new Binding(op, session);
    binding.SetTensors(arguments);
    if (fail) {
      FakeDriver.Failing("cuMemAlloc", 2, () => Throws<MemoryExhaustedException>(
                                                    () => new DeviceMemory(context, 64)));
      FakeDriver.Failing("cuStreamCreate", 999, () => Throws<DeviceFailedException>(
                                                          () => new DeviceStream(context)));
    }
    if (!dispose) return;
    foreach (IDisposable one in new IDisposable[] { context, arguments, options, stream, graph, op,
                                                    session, plan, binding }) {
      one.Dispose();
    }
  }

  public static void RoundsOnTheDeviceLeaveNothingBehind() {
    const int Rounds = 1000;
    for (int i = 0; i < Rounds; ++i) {
      if (i % 10 == 9) {
        Away(() => DeviceRound(false, true));
      } else {
        DeviceRound(true, i % 10 == 8);
      }
      if (i % 100 == 99) ExpectAllBack("round " + i);
    }
  }

  public static void FailuresOfTheDeviceHaveTheirClasses() {
    using (var context = FakeContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var arguments = DeviceStep(context)) {
      FakeDriver.Failing("nvrtcCompileProgram", 6, () => {
        var failed = Throws<CompileFailedException>(() => op.Prepare(arguments));
        Expect(failed.Status == Status.Compile && failed.NativeDomain == 2, failed.Message);
      });
      using (var plan = op.Prepare(arguments)) {
        FakeDriver.Failing("cuLaunchKernelEx", 700, () => {
          var lost = Throws<DeviceFailedException>(() => plan.Execute(session, arguments));
          Expect(lost.Sticky && lost.NativeCode == 700 && lost.NativeDomain == 1, lost.Message);
        });
      }
    }
    Throws<UnavailableException>(
        () => new Context(new ContextOptions { CudaDevice = 0, DriverPath = "/nowhere/libcuda" }));
    ExpectAllBack("after failures");
  }
}
