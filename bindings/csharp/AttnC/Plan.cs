using System;
using AttnC.Native;

namespace AttnC {

/// <summary>How a shape class of an operator runs; any threads at once.</summary>
public sealed class Plan : IDisposable {
  private readonly PlanHandle handle_;

  internal Plan(PlanHandle owned) { handle_ = owned; }

  private PlanHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>Workspace, capture facts and the range that it serves.</summary>
  public PlanInfo Info {
    get {
      using (var info = new attn_plan_info()) {
        native.attn_plan_get_info(Handle, info);
        return new PlanInfo(info);
      }
    }
  }

  /// <summary>JSON for people and logs.</summary>
  public string Describe() {
    return Text.Fetched((byte[] buffer, ulong capacity, out ulong needed) =>
                            native.attn_plan_describe(Handle, buffer, capacity, out needed));
  }

  /// <summary>Runs the plan. CPU: returns when done. CUDA: returns when launched; what the tensors
  /// lie in must stay until the execution has ended.</summary>
  public void Execute(Session session, Arguments arguments, ExecuteOptions options = null) {
    PlanHandle plan = Handle;
    SessionHandle order = Need.Of(session, nameof(session)).Handle;
    ArgumentsHandle call = Need.Of(arguments, nameof(arguments)).Handle;
    ExecuteDescHandle how = options == null ? null : options.Handle;
    // Mono gives the first of two handles not back where the second is closed.
    using (new Held(order))
    using (new Held(call))
    using (new Held(how)) {
      native.attn_plan_execute(plan, order, call.Inputs, call.Outputs,
                               how == null ? null : how.Desc);
    }
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
