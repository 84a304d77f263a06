using System;
using AttnC.Native;

namespace AttnC {

/// <summary>Something that is given back through its context, whose native object it keeps alive,
/// whoever disposed or finalised the context's own handle before.</summary>
internal abstract class HostHandle : ObjectHandle {
  private bool made_;

  protected HostHandle(ContextHandle context) : base(IntPtr.Zero) {
    bool held = false;
    context.DangerousAddRef(ref held);
    Context = context;
  }

  /// <summary>Its context, open as long as this lives.</summary>
  internal ContextHandle Context { get; }

  /// <summary>What was made, in the device's terms; null is legal. A call that uses it holds this
  /// handle.</summary>
  internal IntPtr Address { get { return handle; } }

  public override bool IsInvalid { get { return Context == null; } }

  protected void Made(IntPtr address) {
    SetHandle(address);
    made_ = true;
  }

  /// <summary>Gives back what was made. Nobody is there to be told of a failure.</summary>
  protected abstract void GiveBack(IntPtr context);

  protected override bool ReleaseHandle() {
    if (made_) GiveBack(Context.Address);
    Context.DangerousRelease();
    return true;
  }
}

/// <summary>Memory of a context's device.</summary>
internal sealed class MemoryHandle : HostHandle {
  private readonly uint kind_;
  private readonly long bytes_;

  private MemoryHandle(ContextHandle context, uint kind, long bytes) : base(context) {
    kind_ = kind;
    bytes_ = bytes;
  }

  internal static MemoryHandle Allocate(ContextHandle context, MemoryKind kind, long bytes) {
    var made = new MemoryHandle(context, (uint)kind, bytes);
    try {
      IntPtr address;
      native.attn_host_memory_alloc(context, (uint)kind, (ulong)bytes, out address);
      made.Made(address);
      // It is little for the collector, whatever lies behind it.
      if (bytes > 0) GC.AddMemoryPressure(bytes);
      return made;
    } catch {
      made.Dispose();
      throw;
    }
  }

  protected override void GiveBack(IntPtr context) {
    native.attn_host_memory_free(context, kind_, handle);
    if (bytes_ > 0) GC.RemoveMemoryPressure(bytes_);
  }
}

/// <summary>A stream of a context's device.</summary>
internal sealed class StreamHandle : HostHandle {
  private StreamHandle(ContextHandle context) : base(context) {}

  internal static StreamHandle Create(ContextHandle context) {
    var made = new StreamHandle(context);
    try {
      IntPtr stream;
      native.attn_host_stream_create(context, out stream);
      made.Made(stream);
      return made;
    } catch {
      made.Dispose();
      throw;
    }
  }

  protected override void GiveBack(IntPtr context) {
    native.attn_host_stream_release(context, handle);
  }
}

}  // namespace AttnC
