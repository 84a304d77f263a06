using System;
using AttnC.Native;

namespace AttnC {

/// <summary>One order of executions; one thread at a time.</summary>
public sealed class Session : IDisposable {
  private readonly SessionHandle handle_;

  /// <summary>Creates an order of executions; `label` is for messages.</summary>
  public Session(Context context, string label = null) {
    ContextHandle owner = Need.Of(context, nameof(context)).Handle;
    using (var desc = new attn_session_desc()) {
      desc.label = Text.In(label, "the session's label");
      IntPtr made;
      native.attn_session_create(owner, desc, out made);
      handle_ = new SessionHandle(made);
    }
  }

  internal SessionHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>The faults that reached the host so far, without synchronising.</summary>
  public FaultInfo PollFaults() {
    using (var info = new attn_fault_info()) {
      native.attn_session_poll_faults(Handle, info);
      return new FaultInfo(info);
    }
  }

  /// <summary>Ends a poisoning, in the order of a stream.</summary>
  public void ClearFaults(IntPtr stream = default(IntPtr)) {
    native.attn_session_clear_faults(Handle, stream);
  }

  /// <summary>The same with a stream of this library.</summary>
  public void ClearFaults(DeviceStream stream) {
    StreamHandle named = Need.Of(stream, nameof(stream)).Handle;
    using (new Held(named)) native.attn_session_clear_faults(Handle, named.Address);
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
