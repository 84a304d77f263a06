using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;
using AttnC;

/// <summary>The callbacks of a context: used, given back, and allowed to fail.</summary>
static partial class Tests {
  /// <summary>One token of eight sequences on top of 255, large enough for several threads.
  /// </summary>
  private sealed class Decode {
    private const int Batch = 8, Keys = 256, Size = 64;
    private readonly float[] query_, keys_, values_;
    public readonly float[] Out = new float[Batch * 2 * Size];

    public Decode() {
      var random = new Random(7);
      query_ = Enumerable.Range(0, Batch * 4 * Size).Select(_ => Next(random)).ToArray();
      keys_ = Enumerable.Range(0, Batch * Keys * Size).Select(_ => Next(random)).ToArray();
      values_ = Enumerable.Range(0, Batch * Keys * Size).Select(_ => Next(random)).ToArray();
    }

    private static float Next(Random random) { return (float)random.NextDouble() - 0.5f; }

    public Arguments Call() {
      var last = Enumerable.Repeat(Keys - 1, Batch).ToArray();
      return new Arguments()
          .Input(0, Tensor.Of(query_, Batch, 1, 4 * Size))
          .InPlace(3, 1, Tensor.Of(keys_, Batch, 1, Keys, Size))
          .InPlace(4, 2, Tensor.Of(values_, Batch, 1, Keys, Size))
          .Input(5, Tensor.Of(last, Batch)).Input(6, Tensor.Of(new[] { Keys }))
          .Output(0, Tensor.Of(Out, Batch, 1, 2 * Size));
    }

    public float[] Run(Op op, Session session) {
      using (var call = Call())
      using (var plan = op.Prepare(call)) {
        plan.Execute(session, call);
      }
      return Out;
    }

    public static float[] Result(ContextOptions options) {
      options.IgnoreEnvironment = true;
      using (var context = new Context(options))
      using (var op = Attention(context))
      using (var session = new Session(context)) {
        return new Decode().Run(op, session);
      }
    }
  }

  /// <summary>Aligned memory, counted.</summary>
  private sealed class CountingAllocator : IAllocator {
    private readonly Dictionary<IntPtr, IntPtr> begins_ = new Dictionary<IntPtr, IntPtr>();
    public int Given;
    public long Held;
    public bool Fails;

    public IntPtr Allocate(MemoryKind kind, ulong bytes, ulong alignment, IntPtr stream) {
      if (Fails) throw new InvalidOperationException("no memory today");
      if (kind != MemoryKind.Host || stream != IntPtr.Zero) return IntPtr.Zero;
      IntPtr begin = Marshal.AllocHGlobal((IntPtr)(long)(bytes + alignment));
      ulong address = ((ulong)begin + alignment - 1) / alignment * alignment;
      lock (begins_) {
        begins_[(IntPtr)(long)address] = begin;
        ++Given;
        Held += (long)bytes;
      }
      return (IntPtr)(long)address;
    }

    public void Deallocate(MemoryKind kind, IntPtr memory, ulong bytes, IntPtr stream) {
      lock (begins_) {
        Marshal.FreeHGlobal(begins_[memory]);
        begins_.Remove(memory);
        Held -= (long)bytes;
      }
      if (Fails) throw new InvalidOperationException("it is gone all the same");
    }
  }

  /// <summary>A thread for every task, or what a test makes of it.</summary>
  private sealed class Threads : IExecutor {
    public int Loops;
    public Action<int, Action<int>> Loop = (count, task) => {
      var threads = Enumerable.Range(0, count).Select(i => new Thread(() => task(i))).ToArray();
      foreach (var thread in threads) thread.Start();
      foreach (var thread in threads) thread.Join();
    };

    public int Concurrency { get; set; } = 3;

    public void ParallelFor(int count, Action<int> task) {
      Interlocked.Increment(ref Loops);
      Loop(count, task);
    }
  }

  public static void LogReachesTheDelegate() {
    var lines = new List<string>();
    Action<Severity, string> log = (severity, line) => {
      lock (lines) lines.Add(severity + " " + line);
      throw new InvalidOperationException("nobody hears of it");
    };
    var options = new ContextOptions { IgnoreEnvironment = true, Log = log,
                                       MinimumSeverity = Severity.Debug };
    using (var context = new Context(options))
    using (var op = Attention(context))
    using (var arguments = new Step().Arguments())
    using (op.Prepare(arguments)) {
      Collect();
      Expect(lines.Any(one => one.Contains("'layer 7': planned")), string.Join("; ", lines));
    }
    lines.Clear();
    options.MinimumSeverity = Severity.Error;
    using (var context = new Context(options))
    using (var op = Attention(context))
    using (var arguments = new Step().Arguments())
    using (op.Prepare(arguments)) {
      Expect(lines.Count == 0, "what matters less is left out");
    }
  }

  public static void AllocatorGivesScratch() {
    var allocator = new CountingAllocator();
    var options = new ContextOptions { IgnoreEnvironment = true, Allocator = allocator };
    using (var context = new Context(options))
    using (var op = Attention(context))
    using (var session = new Session(context)) {
      var step = new Decode();
      Expect(step.Run(op, session).SequenceEqual(Decode.Result(new ContextOptions())), "its bits");
      int given = allocator.Given;
      Expect(given > 0 && allocator.Held > 0, "scratch is the allocator's");
      step.Run(op, session);
      Expect(allocator.Given == given, "and is kept");
      Expect((long)context.Stats.ScratchBytes == allocator.Held, "as the counter says");
      allocator.Fails = true;
      context.Trim();
      Expect(allocator.Held == 0, "what is idle goes back");
      var error = Throws<AttnException>(() => step.Run(op, session));
      Expect(error.Status == Status.OutOfMemory, error.Message);
      allocator.Fails = false;
      step.Run(op, session);
    }
    Expect(allocator.Held == 0, "everything went back");
  }

  public static void ExecutorRunsTheTasks() {
    var expected = Decode.Result(new ContextOptions { ThreadCount = 1 });
    var threads = new Threads();
    using (var context = new Context(new ContextOptions { Executor = threads })) {
      Expect(context.Info.ThreadCount == 3, "its concurrency");
    }
    Expect(Decode.Result(new ContextOptions { Executor = threads }).SequenceEqual(expected),
           "the same bits");
    Expect(threads.Loops > 0, "it was asked");
  }

  public static void ExecutorsMayFail() {
    var expected = Decode.Result(new ContextOptions { ThreadCount = 1 });
    var late = new List<Action<int>>();
    var loops = new Action<int, Action<int>>[] {
      (count, task) => {},  // leaves everything out
      (count, task) => { throw new InvalidOperationException("no threads today"); },
      (count, task) => {
        task(0);
        throw new InvalidOperationException("half way");
      },
      (count, task) => {
        for (int i = -1; i <= count; ++i) {
          task(i);
          task(i);
        }
        late.Add(task);
      },
      (count, task) => new Thread(() => {  // returns before they have ended
        for (int i = 0; i < count; ++i) task(i);
      }).Start(),
    };
    foreach (var loop in loops) {
      var threads = new Threads { Loop = loop };
      var result = Decode.Result(new ContextOptions { Executor = threads });
      Expect(threads.Loops > 0 && result.SequenceEqual(expected), "the same bits");
    }
    Expect(late.Count > 0, "a task was kept");
    foreach (var task in late) task(0);
  }

  /// <summary>The callbacks of a context, seen from outside.</summary>
  private static WeakReference[] Given(bool fails) {
    var lines = 0;
    var options = new ContextOptions { IgnoreEnvironment = true, Log = (severity, line) => ++lines,
                                       Allocator = new CountingAllocator(),
                                       Executor = new Threads(),
                                       SimdLevel = fails ? "no such level" : null };
    var given = new[] { new WeakReference(options.Log), new WeakReference(options.Allocator),
                        new WeakReference(options.Executor) };
    if (fails) {
      Throws<InvalidArgumentException>(() => new Context(options));
      return given;
    }
    // The session keeps the context, and so what the context calls.
    var context = new Context(options);
    var session = new Session(context);
    context.Dispose();
    options = null;
    Collect();
    Expect(given.All(one => one.IsAlive), "they live as long as something may call them");
    session.Dispose();
    return given;
  }

  public static void CallbacksAreLetGo() {
    foreach (bool fails in new[] { false, true }) {
      WeakReference[] given = null;
      var thread = new Thread(() => given = Given(fails));  // a stack that is gone then
      thread.Start();
      thread.Join();
      for (int i = 0; i < 10 && given.Any(one => one.IsAlive); ++i) Collect();
      // Mono's collector looks at stacks and registers conservatively, and may keep one.
      Expect(given.Count(one => one.IsAlive) <= 1, "a context that is gone holds its callbacks");
    }
  }
}
