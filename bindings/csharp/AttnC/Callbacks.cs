using System;
using System.Runtime.InteropServices;
using System.Threading;
using AttnC.Native;

namespace AttnC {

/// <summary>How much a line of the log matters.</summary>
public enum Severity {
  /// <summary>For those who look for a defect.</summary>
  Debug = native.ATTN_LOG_DEBUG,
  /// <summary>What was done.</summary>
  Info = native.ATTN_LOG_INFO,
  /// <summary>What may be unwanted.</summary>
  Warning = native.ATTN_LOG_WARNING,
  /// <summary>What went wrong.</summary>
  Error = native.ATTN_LOG_ERROR
}

/// <summary>Gives memory of sessions: scratch, and on a CUDA device the words of their faults; any
/// threads at once. attn_c.h says which kinds are asked for, and in which order streams use them.
/// What it throws counts as no memory: the call around it fails with Status.OutOfMemory.</summary>
public interface IAllocator {
  /// <summary>Memory of a size in bytes at an address that is a multiple of `alignment`; zero for
  /// none. `stream` is the one that device memory is ordered on.</summary>
  IntPtr Allocate(MemoryKind kind, ulong bytes, ulong alignment, IntPtr stream);

  /// <summary>Takes back what Allocate gave. What it throws is dropped.</summary>
  void Deallocate(MemoryKind kind, IntPtr memory, ulong bytes, IntPtr stream);
}

/// <summary>Runs tasks on threads of the program; several threads call it where sessions run at
/// once. Results never depend on it.</summary>
public interface IExecutor {
  /// <summary>Threads that it may use, at least 1; asked once, while a context is made.</summary>
  int Concurrency { get; }

  /// <summary>Calls task(i) for every i from 0 to count - 1, on any threads, and returns when all
  /// have ended. What it leaves out or throws before, the calling thread does itself; calls with
  /// another index, of an index again, or after the return do nothing.</summary>
  void ParallelFor(int count, Action<int> task);
}

/// <summary>The callback structs of one context. What native code calls are static delegates,
/// which nobody collects; `user` is a handle to the object that was given, which lives until native
/// code lets go of it. No exception leaves a callback.</summary>
internal sealed unsafe class Callbacks : IDisposable {
  [StructLayout(LayoutKind.Sequential)]
  private struct Allocator {
    internal uint StructSize, Reserved;
    internal IntPtr User, ReleaseUser, Allocate, Deallocate;
  }

  [StructLayout(LayoutKind.Sequential)]
  private struct Logger {
    internal uint StructSize;
    internal int MinimumSeverity;
    internal IntPtr User, ReleaseUser, Log;
  }

  [StructLayout(LayoutKind.Sequential)]
  private struct Executor {
    internal uint StructSize, Reserved;
    internal IntPtr User, ReleaseUser, Concurrency, ParallelFor;
  }

  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate void ReleaseFunction(IntPtr user);
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate IntPtr AllocateFunction(IntPtr user, uint kind, ulong bytes, ulong alignment,
                                           IntPtr stream);
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate void DeallocateFunction(IntPtr user, uint kind, IntPtr memory, ulong bytes,
                                           IntPtr stream);
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate void LogFunction(IntPtr user, int severity, IntPtr text);
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate int ConcurrencyFunction(IntPtr user);
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate void ParallelForFunction(IntPtr user, int count, IntPtr task, IntPtr context);

  private static readonly ReleaseFunction releaseFunction = Release;
  private static readonly AllocateFunction allocateFunction = Allocate;
  private static readonly DeallocateFunction deallocateFunction = Deallocate;
  private static readonly LogFunction logFunction = Log;
  private static readonly ConcurrencyFunction concurrencyFunction = Concurrency;
  private static readonly ParallelForFunction parallelForFunction = ParallelFor;

  private sealed class Pool {
    internal IExecutor Executor;
    internal int Concurrency;
  }

  private Allocator* allocator_;
  private Logger* logger_;
  private Executor* executor_;
  private bool owned_ = true;

  /// <summary>The structs that the options ask for, in native memory until it is disposed.
  /// </summary>
  internal Callbacks(ContextOptions options) {
    // Asked before anything is held: what the executor throws is the caller's to see.
    var pool = options.Executor == null ? null : new Pool {
      Executor = options.Executor, Concurrency = options.Executor.Concurrency
    };
    IntPtr release = Address(releaseFunction);
    if (options.Allocator != null) {
      allocator_ = (Allocator*)Marshal.AllocHGlobal(sizeof(Allocator));
      *allocator_ = new Allocator { StructSize = (uint)sizeof(Allocator),
                                    User = Hold(options.Allocator), ReleaseUser = release,
                                    Allocate = Address(allocateFunction),
                                    Deallocate = Address(deallocateFunction) };
    }
    if (options.Log != null) {
      logger_ = (Logger*)Marshal.AllocHGlobal(sizeof(Logger));
      *logger_ = new Logger { StructSize = (uint)sizeof(Logger),
                              MinimumSeverity = (int)(options.MinimumSeverity ?? 0),
                              User = Hold(options.Log), ReleaseUser = release,
                              Log = Address(logFunction) };
    }
    if (pool != null) {
      executor_ = (Executor*)Marshal.AllocHGlobal(sizeof(Executor));
      *executor_ = new Executor { StructSize = (uint)sizeof(Executor), User = Hold(pool),
                                  ReleaseUser = release,
                                  Concurrency = Address(concurrencyFunction),
                                  ParallelFor = Address(parallelForFunction) };
    }
  }

  internal void Set(attn_context_desc desc) {
    desc.set_callbacks((IntPtr)allocator_, (IntPtr)logger_, (IntPtr)executor_);
  }

  /// <summary>A context was made: it lets go of the objects.</summary>
  internal void GiveAway() { owned_ = false; }

  public void Dispose() {
    if (owned_) {
      if (allocator_ != null) Release(allocator_->User);
      if (logger_ != null) Release(logger_->User);
      if (executor_ != null) Release(executor_->User);
    }
    Marshal.FreeHGlobal((IntPtr)allocator_);
    Marshal.FreeHGlobal((IntPtr)logger_);
    Marshal.FreeHGlobal((IntPtr)executor_);
    allocator_ = null;
    logger_ = null;
    executor_ = null;
    owned_ = false;
  }

  private static IntPtr Address(Delegate function) {
    return Marshal.GetFunctionPointerForDelegate(function);
  }

  private static IntPtr Hold(object held) { return GCHandle.ToIntPtr(GCHandle.Alloc(held)); }

  private static T Held<T>(IntPtr user) { return (T)GCHandle.FromIntPtr(user).Target; }

  private static void Release(IntPtr user) { GCHandle.FromIntPtr(user).Free(); }

  private static IntPtr Allocate(IntPtr user, uint kind, ulong bytes, ulong alignment,
                                 IntPtr stream) {
    try {
      return Held<IAllocator>(user).Allocate((MemoryKind)kind, bytes, alignment, stream);
    } catch (Exception) {
      return IntPtr.Zero;
    }
  }

  private static void Deallocate(IntPtr user, uint kind, IntPtr memory, ulong bytes,
                                 IntPtr stream) {
    try {
      Held<IAllocator>(user).Deallocate((MemoryKind)kind, memory, bytes, stream);
    } catch (Exception) {  // nobody is there to be told
    }
  }

  private static void Log(IntPtr user, int severity, IntPtr text) {
    try {
      Held<Action<Severity, string>>(user)((Severity)severity, Text.At(text));
    } catch (Exception) {  // a log line that is lost harms nothing
    }
  }

  private static int Concurrency(IntPtr user) { return Held<Pool>(user).Concurrency; }

  private static void ParallelFor(IntPtr user, int count, IntPtr task, IntPtr context) {
    Tasks tasks;
    try {
      tasks = new Tasks(count, task, context);
    } catch (OutOfMemoryException) {
      for (int index = 0; index < count; ++index) native.attn_csharp_run_task(task, context, index);
      return;
    }
    try {
      Held<Pool>(user).Executor.ParallelFor(count, tasks.Run);
    } catch (Exception) {  // what was not run is run below
    }
    tasks.Finish();
  }

  /// <summary>The tasks of one parallel loop: each runs once, and none after the loop.</summary>
  private sealed class Tasks {
    private readonly int[] taken_;
    private readonly IntPtr task_, context_;
    private int ended_;

    internal Tasks(int count, IntPtr task, IntPtr context) {
      taken_ = new int[count];
      task_ = task;
      context_ = context;
    }

    internal void Run(int index) {
      if (index < 0 || index >= taken_.Length) return;
      if (Interlocked.Exchange(ref taken_[index], 1) != 0) return;
      native.attn_csharp_run_task(task_, context_, index);
      Interlocked.Increment(ref ended_);
    }

    /// <summary>Runs what is left, and waits for what other threads have begun.</summary>
    internal void Finish() {
      for (int index = 0; index < taken_.Length; ++index) Run(index);
      var wait = new SpinWait();
      while (Volatile.Read(ref ended_) != taken_.Length) wait.SpinOnce();
    }
  }
}

}  // namespace AttnC
