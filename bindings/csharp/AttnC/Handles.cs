using System;
using System.Runtime.InteropServices;
using AttnC.Native;

namespace AttnC {

/// <summary>One reference of a C object. The marshaller keeps it alive during every call, so that
/// a finaliser cannot release what native code still uses; a release is legal on any thread.
/// </summary>
internal abstract class ObjectHandle : SafeHandle {
  protected ObjectHandle(IntPtr owned) : base(IntPtr.Zero, true) { SetHandle(owned); }
  public override bool IsInvalid { get { return handle == IntPtr.Zero; } }
}

internal sealed class ContextHandle : ObjectHandle {
  internal ContextHandle(IntPtr owned) : base(owned) {}
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
  protected override bool ReleaseHandle() {
    native.attn_binding_release(handle);
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

}  // namespace AttnC
