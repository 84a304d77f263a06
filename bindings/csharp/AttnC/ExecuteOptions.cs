using System;
using AttnC.Native;

namespace AttnC {

/// <summary>The struct of the options, and what it names, until nobody uses it.</summary>
internal sealed class ExecuteDescHandle : ObjectHandle {
  internal readonly attn_execute_desc Desc;
  internal readonly HeldMemory Named = new HeldMemory();

  internal ExecuteDescHandle(attn_execute_desc desc) : base((IntPtr)1) { Desc = desc; }

  protected override bool ReleaseHandle() {
    Named.LetGo();
    Desc.Dispose();
    return true;
  }
}

/// <summary>How to run. One object may serve many calls, of one thread at a time.</summary>
public sealed class ExecuteOptions : IDisposable {
  private const long kStream = 0, kWorkspace = 1;  // what is held

  private readonly ExecuteDescHandle handle_ = new ExecuteDescHandle(new attn_execute_desc());

  internal ExecuteDescHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>Bindings: prepare when no plan fits, outside a capture.</summary>
  public bool Prepare { set { Set(native.ATTN_EXECUTE_PREPARE, value); } }

  /// <summary>A capture may fix lengths that lie in host memory.</summary>
  public bool BakeHostValues { set { Set(native.ATTN_EXECUTE_BAKE_HOST_VALUES, value); } }

  /// <summary>CUDA: the caller knows that the stream is not captured, and that the context's CUDA
  /// context is current.</summary>
  public bool Eager { set { Set(native.ATTN_EXECUTE_EAGER, value); } }

  /// <summary>A CUstream of the context, which must live while it is used; zero is the legacy
  /// default stream.</summary>
  public IntPtr Stream {
    set {
      using (new Held(Handle)) {
        handle_.Desc.stream = value;
        handle_.Named.Replace(kStream, null);
      }
    }
  }

  /// <summary>A stream, which is held as long as the options have it.</summary>
  public void SetStream(DeviceStream stream) {
    StreamHandle named = Need.Of(stream, nameof(stream)).Handle;
    using (new Held(Handle))
    using (new Held(named)) {
      handle_.Desc.stream = named.Address;
      Hold(kStream, named);
    }
  }

  /// <summary>Scratch in memory of the context's device, instead of the session's; it must live
  /// while it is used.</summary>
  public void SetWorkspace(IntPtr memory, ulong bytes) {
    using (new Held(Handle)) {
      handle_.Desc.workspace = memory;
      handle_.Desc.workspace_bytes = bytes;
      handle_.Named.Replace(kWorkspace, null);
    }
  }

  /// <summary>Such scratch, which is held as long as the options have it.</summary>
  public void SetWorkspace(DeviceMemory memory) {
    MemoryHandle named = Need.Of(memory, nameof(memory)).Handle;
    using (new Held(Handle))
    using (new Held(named)) {
      handle_.Desc.workspace = named.Address;
      handle_.Desc.workspace_bytes = (ulong)memory.Bytes;
      Hold(kWorkspace, named);
    }
  }

  private void Hold(long what, ObjectHandle named) {
    handle_.Named.Replace(what, null);
    handle_.Named.Add(what, named);
  }

  private void Set(uint bit, bool value) {
    using (new Held(Handle)) {
      handle_.Desc.flags = value ? handle_.Desc.flags | bit : handle_.Desc.flags & ~bit;
    }
  }

  /// <summary>Frees the options, after a call that uses them.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
