using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Threading;
using AttnC;

/// <summary>Runs tests: each public static method of Tests without parameters is one. What several
/// of them use stands here.</summary>
static partial class Tests {
  private static void Expect(bool condition, string what) {
    if (!condition) throw new Exception("not so: " + what);
  }

  private static T Throws<T>(Action action) where T : Exception {
    try {
      action();
    } catch (T error) {
      return error;
    }
    throw new Exception("no " + typeof(T).Name);
  }

  /// <summary>Each of these uses something that was disposed.</summary>
  private static void Gone(params Action[] uses) {
    for (int i = 0; i < uses.Length; ++i) {
      try {
        uses[i]();
      } catch (ObjectDisposedException) {
        continue;
      }
      throw new Exception("use number " + i + " of something disposed does not say so");
    }
  }

  private static Context QuietContext() {
    return new Context(new ContextOptions { IgnoreEnvironment = true });
  }

  private static Op Attention(Context context) {
    using (var heads = new Attributes().Set("num_heads", 2).Set("kv_num_heads", 1)) {
      return new Op(context, "com.microsoft", "GroupQueryAttention", 1, heads, "layer 7");
    }
  }

  /// <summary>Three tokens, two query heads, one key head of four channels, packed.</summary>
  private sealed class Step {
    public readonly float[] Qkv = new float[48], Out = new float[24];
    public readonly int[] Last = { 2 }, Total = { 3 };

    public Step() {
      for (int row = 0; row < 3; ++row) {
        for (int d = 0; d < 4; ++d) Qkv[row * 16 + 12 + d] = 2 * row + d + 1;
      }
    }

    public Arguments Arguments() {
      return new Arguments().Input(0, Tensor.Of(Qkv, 1, 3, 16)).Input(5, Tensor.Of(Last, 1))
          .Input(6, Tensor.Of(Total)).Output(0, Tensor.Of(Out, 1, 3, 8));
    }

    public bool IsRight {
      get { return Out[0] == 1 && Out[8] == 2 && Out[16] == 3 && Out[23] == 6; }
    }
  }

  private static void Collect() {
    GC.Collect();
    GC.WaitForPendingFinalizers();
    GC.Collect();
  }

  /// <summary>Does something on a stack of its own, which is gone then: a collector that looks at
  /// stacks conservatively finds nothing there.</summary>
  private static void Away(Action action) {
    Exception failure = null;
    var thread = new Thread(() => {
      try {
        action();
      } catch (Exception error) {
        failure = error;
      }
    });
    thread.Start();
    thread.Join();
    if (failure != null) throw new Exception(failure.Message, failure);
  }

  /// <summary>Collects until at most `most` of them live, or in vain; how many live then.</summary>
  private static int Alive(List<WeakReference> objects, int most) {
    int alive = objects.Count;
    for (int i = 0; i < 20 && alive > most; ++i) {
      Collect();
      alive = objects.FindAll(one => one.IsAlive).Count;
    }
    return alive;
  }

  private static long ResidentBytes() {
    return long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]) * 4096;
  }

  /// <summary>Runs the tests that are named, or all.</summary>
  static int Main(string[] names) {
    int failures = 0;
    var tests = typeof(Tests).GetMethods(BindingFlags.Public | BindingFlags.Static |
                                         BindingFlags.DeclaredOnly);
    if (names.Length > 0) tests = Array.FindAll(tests, one => Array.IndexOf(names, one.Name) >= 0);
    foreach (var test in tests) {
      try {
        test.Invoke(null, null);
        Console.WriteLine("ok " + test.Name);
      } catch (TargetInvocationException error) {
        Console.WriteLine("FAILED " + test.Name + " " + error.InnerException);
        ++failures;
      }
    }
    Console.WriteLine(tests.Length - failures + " passed, " + failures + " failed");
    return failures == 0 && tests.Length > 0 ? 0 : 1;
  }
}
