using System;
using System.Runtime.InteropServices;

/// <summary>The state of the driver in tests/loading/fake_driver.h, which the library opens by
/// ATTN_C_DRIVER_PATH: what is out, and which call is to fail.</summary>
static unsafe class FakeDriver {
  [StructLayout(LayoutKind.Sequential)]
  private struct State {
    internal int Version, Devices, Major, Minor;
    internal byte Invalidated;
    internal IntPtr Missing, FailCall;
    internal int FailAt, FailCode;
    internal int CallCount;
    internal fixed ulong Calls[1 << 16];
    internal int FailingCalls, NewestVersionAsked;
    internal int DeviceMemory, HostMemory, Streams, Libraries, Graphs, Executables, UserObjects,
        PrimaryContexts, Pushed;
  }

  /// <summary>That of the compiler, as far as a test needs it.</summary>
  [StructLayout(LayoutKind.Sequential)]
  private struct CompilerState {
    internal int Major, Minor;
    internal IntPtr FailCall;
    internal int FailCode;
  }

  [DllImport("libdl.so.2")]
  private static extern IntPtr dlopen(string path, int flags);
  [DllImport("libdl.so.2")]
  private static extern IntPtr dlsym(IntPtr library, string name);
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  private delegate IntPtr Ask();

  private static IntPtr Open(string variable, string name) {
    string path = Environment.GetEnvironmentVariable(variable);
    IntPtr library = path == null ? IntPtr.Zero : dlopen(path, 2);
    if (library == IntPtr.Zero) throw new Exception(variable + " names no fake: " + path);
    return Marshal.GetDelegateForFunctionPointer<Ask>(dlsym(library, name))();
  }

  private static readonly State* state = (State*)Open("ATTN_C_DRIVER_PATH", "fake_driver");
  private static readonly CompilerState* compiler =
      (CompilerState*)Open("ATTN_C_NVRTC_PATH", "fake_nvrtc");

  /// <summary>Whether the state is laid out as it is here.</summary>
  internal static bool IsKnown {
    get { return state->Version == 12040 && state->FailAt == 1 && state->FailCode == 999; }
  }

  internal static int DeviceMemory { get { return state->DeviceMemory; } }
  internal static int HostMemory { get { return state->HostMemory; } }
  internal static int Streams { get { return state->Streams; } }
  internal static int Executables { get { return state->Executables; } }

  /// <summary>What is out of everything; 0 once all has come back.</summary>
  internal static int Balance {
    get {
      return state->DeviceMemory + state->HostMemory + state->Streams + state->Libraries +
             state->Graphs + state->Executables + state->UserObjects + state->PrimaryContexts +
             state->Pushed;
    }
  }

  /// <summary>Lets a call answer a code while something is done.</summary>
  internal static void Failing(string call, int code, Action action) {
    IntPtr name = Marshal.StringToHGlobalAnsi(call);
    bool compiles = call.StartsWith("nvrtc");
    IntPtr* failing = compiles ? &compiler->FailCall : &state->FailCall;
    *(compiles ? &compiler->FailCode : &state->FailCode) = code;
    state->FailAt = 0;
    *failing = name;
    try {
      action();
    } finally {
      *failing = IntPtr.Zero;
      state->FailAt = 1;
      Marshal.FreeHGlobal(name);
    }
  }
}
