using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using AttnC;

/// <summary>What nobody disposes is released, what is in use is not, and rounds leave nothing
/// behind. Mono looks at stacks and registers conservatively, and may keep an object or two.
/// </summary>
static partial class Tests {
  /// <summary>Objects that nobody disposes, finalised while others run.</summary>
  private static void Abandon(Context context, List<WeakReference> arrays) {
    for (int i = 0; i < 200; ++i) {
      var step = new Step();
      var binding = new Binding(Attention(context), new Session(context));
      var arguments = step.Arguments();
      binding.SetTensors(arguments);
      if (i % 2 == 0) arguments.Dispose();
      using (var options = new ExecuteOptions { Prepare = true }) binding.Execute(options);
      Expect(step.IsRight, "the output is right");
      arrays.Add(new WeakReference(step.Qkv));
      if (i % 20 == 0) GC.Collect();
    }
  }

  public static void FinalisersRelease() {
    using (var context = QuietContext()) {
      var arrays = new List<WeakReference>();
      Away(() => Abandon(context, arrays));
      Expect(Alive(arrays, 4) <= 4, Alive(arrays, 4) + " of 200 arrays are still pinned");
      Expect(context.Stats.BindingsLive <= 4, context.Stats.BindingsLive + " bindings live");
    }
  }

  /// <summary>Arrays of 50 bindings or arguments that are dropped without Dispose.</summary>
  private static void ExpectDropped(string way, Action<Step> drop) {
    var arrays = new List<WeakReference>();
    Away(() => {
      for (int i = 0; i < 50; ++i) {
        var step = new Step();
        drop(step);
        arrays.Add(new WeakReference(step.Qkv));
        arrays.Add(new WeakReference(step.Out));
      }
    });
    int alive = Alive(arrays, 8);
    Expect(alive <= 8, way + ": " + alive + " of 100 arrays are still pinned");
  }

  public static void DroppedBindingsLetArraysGo() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context)) {
      ExpectDropped("one by one", step => {
        var binding = new Binding(op, session);
        binding.SetInput(0, Tensor.Of(step.Qkv, 1, 3, 16));
        binding.SetOutput(0, Tensor.Of(step.Out, 1, 3, 8));
      });
      ExpectDropped("arguments disposed", step => {
        var binding = new Binding(op, session);
        using (var arguments = step.Arguments()) binding.SetTensors(arguments);
      });
      ExpectDropped("arguments dropped", step => {
        new Binding(op, session).SetTensors(step.Arguments());
      });
      ExpectDropped("arguments alone", step => step.Arguments());
      ExpectDropped("all disposed", step => {
        using (var binding = new Binding(op, session))
        using (var arguments = step.Arguments()) binding.SetTensors(arguments);
      });
    }
  }

  public static void ReplacedArraysAreLetGo() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var binding = new Binding(op, session)) {
      var bindings = new List<Binding>();
      ExpectDropped("set one by one", step => {
        var other = new Binding(op, session);
        bindings.Add(other);
        using (var arguments = step.Arguments()) other.SetTensors(arguments);
        other.SetInput(0, Tensor.Of(new float[48], 1, 3, 16));
        other.SetOutput(0, null);
      });
      foreach (var other in bindings) other.Dispose();
      ExpectDropped("set together", step => {
        binding.SetInput(0, Tensor.Of(step.Qkv, 1, 3, 16));
        binding.SetOutput(0, Tensor.Of(step.Out, 1, 3, 8));
        using (var arguments = new Step().Arguments()) binding.SetTensors(arguments);
      });
      // What is bound last stays, and what could not be bound leaves it alone.
      var last = new Step();
      using (var arguments = last.Arguments()) binding.SetTensors(arguments);
      using (var wrong = new Step().Arguments().Input(999, Tensor.Of(new float[1], 1))) {
        Throws<InvalidArgumentException>(() => binding.SetTensors(wrong));
      }
      Collect();
      using (var options = new ExecuteOptions { Prepare = true }) binding.Execute(options);
      Expect(last.IsRight, "the output is right");
    }
  }

  /// <summary>The tensors of a step in memory that nothing else refers to.</summary>
  private static Arguments InDeviceMemory(Context context, Step step, List<WeakReference> memory,
                                          DeviceMemory output) {
    using (var stream = new DeviceStream(context)) {
      var query = new DeviceMemory(context, 48 * 4);
      query.Write(step.Qkv, stream);
      memory.Add(new WeakReference(query));
      return new Arguments().Input(0, query.Tensor(ElementType.Float32, 1, 3, 16))
          .Input(5, Tensor.Of(step.Last, 1)).Input(6, Tensor.Of(step.Total))
          .Output(0, output.Tensor(ElementType.Float32, 1, 3, 8));
    }
  }

  public static void MemoryLivesAsLongAsItsUsers() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var stream = new DeviceStream(context)) {
      var memory = new List<WeakReference>();
      Tensor alone = null;
      var output = new DeviceMemory(context, 24 * 4);
      var binding = new Binding(op, session);
      Arguments arguments = null;
      Away(() => {
        var step = new Step();
        arguments = InDeviceMemory(context, step, memory, output);
        using (var others = InDeviceMemory(context, step, memory, output)) {
          binding.SetTensors(others);
        }
        var query = new DeviceMemory(context, 48 * 4);
        query.Write(step.Qkv, stream);
        alone = query.Tensor(ElementType.Float32, 1, 3, 16);
      });
      Action<string> expect = who => {
        var step = new Step();
        output.Read(step.Out, stream);
        Expect(step.IsRight, who + " gives the right output");
        output.Write(new float[24], stream);
      };
      for (int i = 0; i < 3; ++i) Collect();
      Away(() => {  // what was freed would be given out again
        for (int i = 0; i < 100; ++i) {
          using (var other = new DeviceMemory(context, 48 * 4)) other.Write(new float[48], stream);
        }
      });
      using (var options = new ExecuteOptions { Prepare = true }) binding.Execute(options);
      expect("a binding");
      using (var plan = op.Prepare(arguments)) plan.Execute(session, arguments);
      expect("arguments");
      binding.SetInput(0, alone);
      alone = null;
      Collect();
      binding.Execute();
      expect("a tensor");
      output.Dispose();  // who uses it keeps it
      binding.Execute();
      binding.Dispose();
      arguments.Dispose();
      Expect(Alive(memory, 1) <= 1, "memory is let go with the last of them");
    }
  }

  private static void Round(Context context, int last) {
    var step = new Step();
    step.Last[0] = last;
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var binding = new Binding(op, session))
    using (var arguments = step.Arguments())
    using (var options = new ExecuteOptions { Prepare = true }) {
      binding.SetTensors(arguments);
      binding.Execute(options);
      Expect(step.IsRight, "the output is right");
    }
  }

  private static void Rounds(Context context, int count) {
    for (int i = 0; i < count; ++i) {
      if (i % 10 == 0) Throws<InvalidArgumentException>(() => Round(context, 7));
      Round(context, 2);
      if (i % 1000 == 0) Collect();
    }
    Collect();
  }

  // A runtime compiles methods anew and keeps pools of its own, and may settle late: what leaks
  // does so in each further half.
  public static void RoundsLeaveNothingBehind() {
    const int Half = 5000;
    using (var context = QuietContext()) {
      Rounds(context, Half);
      int halves = 1;
      long grown;
      do {
        long before = ResidentBytes();
        Rounds(context, Half);
        grown = ResidentBytes() - before;
      } while (++halves < 4 && grown >= 1 << 20);
      Expect(grown < 1 << 20, "grown by " + grown + " bytes");
      context.Trim();
      var stats = context.Stats;
      Expect(stats.OpsLive + stats.SessionsLive + stats.BindingsLive + stats.PlansLive == 0,
             "nothing lives");
      Expect(stats.ScratchBytes == 0 && stats.Executions == (ulong)(halves * Half), "counters");
    }
  }

  public static void RoundsWithMemoryLeaveNothingBehind() {
    const int Rounds = 60, Bytes = 4 << 20;
    Action<int> round = i => {
      var context = QuietContext();
      var stream = new DeviceStream(context);
      var memory = new DeviceMemory(context, Bytes);
      memory.Write(new byte[Bytes], stream);
      if (i % 3 == 2) return;  // finalisers do it
      context.Dispose();
      stream.Synchronize();
      memory.Dispose();
      stream.Dispose();
    };
    long before = 0;
    for (int i = 0; i < Rounds; ++i) {
      Away(() => round(i));
      Collect();
      if (i == Rounds / 3) before = ResidentBytes();
    }
    for (int i = 0; i < 3; ++i) Collect();
    long grown = ResidentBytes() - before;
    Expect(grown < 8L * Bytes, "grown by " + grown + " bytes");
  }
}
