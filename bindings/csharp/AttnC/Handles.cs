using System;
using System.Runtime.InteropServices;
using AttnC.Native;

namespace AttnC {

/// <summary>One reference of a C object, or of something else that native code uses. The marshaller
/// keeps it during every call, as Held does, so that what is disposed or finalised meanwhile is
/// released when the call has ended; a release is legal on any thread.</summary>
internal abstract class ObjectHandle : SafeHandle {
  private volatile bool disposed_;

  protected ObjectHandle(IntPtr owned) : base(IntPtr.Zero, true) { SetHandle(owned); }
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }

  /// <summary>Throws where its owner was disposed, even if something still holds it.</summary>
  internal void Check(object owner) {
    if (disposed_) throw new ObjectDisposedException(owner.GetType().FullName);
  }

  protected override void Dispose(bool disposing) {
    disposed_ = true;
    base.Dispose(disposing);
  }
}

/// <summary>Holds a handle in a scope; null holds nothing.</summary>
internal struct Held : IDisposable {
  private readonly ObjectHandle handle_;

  internal Held(ObjectHandle handle) {
    handle_ = handle;
    bool held = false;
    if (handle != null) handle.DangerousAddRef(ref held);
  }

  public void Dispose() {
    if (handle_ != null) handle_.DangerousRelease();
  }
}

internal sealed class ContextHandle : ObjectHandle {
  internal ContextHandle(IntPtr owned) : base(owned) {}
  /// <summary>What a release may still use, where the handle is closed to others.</summary>
  internal IntPtr Address { get { return handle; } }
  protected override bool ReleaseHandle() {
    native.attn_context_release(handle);
    return true;
  }
}

internal sealed class SessionHandle : ObjectHandle {
  internal SessionHandle(IntPtr owned) : base(owned) {}
  protected override bool ReleaseHandle() {
    native.attn_session_release(handle);
    return true;
  }
}

internal sealed class OpHandle : ObjectHandle {
  internal OpHandle(IntPtr owned) : base(owned) {}
  protected override bool ReleaseHandle() {
    native.attn_op_release(handle);
    return true;
  }
}

internal sealed class PlanHandle : ObjectHandle {
  internal PlanHandle(IntPtr owned) : base(owned) {}
  protected override bool ReleaseHandle() {
    native.attn_plan_release(handle);
    return true;
  }
}

internal sealed class BindingHandle : ObjectHandle {
  internal BindingHandle(IntPtr owned) : base(owned) {}
  /// <summary>The memory of what is bound; lock it.</summary>
  internal readonly HeldMemory Memory = new HeldMemory();
  protected override bool ReleaseHandle() {
    native.attn_binding_release(handle);
    Memory.LetGo();
    return true;
  }
}

internal sealed class GraphHandle : ObjectHandle {
  internal GraphHandle(IntPtr owned) : base(owned) {}
  protected override bool ReleaseHandle() {
    native.attn_host_graph_release(handle);
    return true;
  }
}

/// <summary>An object of SWIG's layer, which is freed when nobody uses it.</summary>
internal sealed class Owned<T> : ObjectHandle where T : class, IDisposable {
  internal readonly T Value;
  internal Owned(T value) : base((IntPtr)1) { Value = value; }
  protected override bool ReleaseHandle() {
    Value.Dispose();
    return true;
  }
}

}  // namespace AttnC
