using System;
using AttnC.Native;

namespace AttnC {

/// <summary>An operator's tensors tied to a session, with the plan that fits them; one thread at a
/// time. It holds what its tensors lie in: arrays stay where they are, and memory of a device
/// stays, until the slot is bound anew or unbound, or the binding is disposed or collected and no
/// call uses it.</summary>
public sealed class Binding : IDisposable {
  private readonly BindingHandle handle_;

  /// <summary>Ties an operator to a session, both of one context.</summary>
  public Binding(Op op, Session session) {
    OpHandle first = Need.Of(op, nameof(op)).Handle;
    SessionHandle second = Need.Of(session, nameof(session)).Handle;
    IntPtr made;
    // Mono gives the first of two handles not back where the second is closed.
    using (new Held(second)) native.attn_binding_create(first, second, out made);
    handle_ = new BindingHandle(made);
  }

  private BindingHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>Binds one input; null unbinds.</summary>
  public void SetInput(uint slot, Tensor tensor) {
    using (var one = tensor == null ? null : new Arguments().Input(slot, tensor)) {
      Set(slot, one == null ? null : one.Handle, (handle, held) => native.attn_binding_set_input(
          handle, slot, held == null ? null : held.Inputs.tensor(0)));
    }
  }

  /// <summary>Binds one output; null unbinds.</summary>
  public void SetOutput(uint slot, Tensor tensor) {
    using (var one = tensor == null ? null : new Arguments().Output(slot, tensor)) {
      Set(HeldMemory.Output + slot, one == null ? null : one.Handle,
          (handle, held) => native.attn_binding_set_output(
              handle, slot, held == null ? null : held.Outputs.tensor(0)));
    }
  }

  private void Set(long slot, ArgumentsHandle one, Action<BindingHandle, ArgumentsHandle> bind) {
    BindingHandle handle = Handle;
    using (new Held(handle)) {
      lock (handle.Memory) {  // what is held is what is bound
        bind(handle, one);
        handle.Memory.Replace(slot, one == null ? null : one.Memory);
      }
    }
  }

  /// <summary>Replaces all tensors at once. On failure the old ones stay.</summary>
  public void SetTensors(Arguments arguments) {
    ArgumentsHandle given = Need.Of(arguments, nameof(arguments)).Handle;
    BindingHandle handle = Handle;
    using (new Held(given))
    using (new Held(handle)) {
      lock (handle.Memory) {
        native.attn_binding_set_tensors(handle, given.Inputs, given.Outputs);
        handle.Memory.Replace(given.Memory);
      }
    }
  }

  /// <summary>Finds or makes the plan for what is bound.</summary>
  public void Prepare(PrepareOptions options = null) {
    using (var desc = (options ?? new PrepareOptions()).Desc()) {
      native.attn_binding_prepare(Handle, desc);
    }
  }

  /// <summary>Runs what is bound.</summary>
  public void Execute(ExecuteOptions options = null) {
    BindingHandle handle = Handle;
    ExecuteDescHandle how = options == null ? null : options.Handle;
    using (new Held(how)) native.attn_binding_execute(handle, how == null ? null : how.Desc);
  }

  /// <summary>Facts of its plan, or that there is none yet.</summary>
  public PlanInfo CaptureSupport() {
    using (var info = new attn_plan_info()) {
      native.attn_binding_capture_support(Handle, info);
      return new PlanInfo(info);
    }
  }

  /// <summary>As Plan.Describe.</summary>
  public string Describe() {
    return Text.Fetched((byte[] buffer, ulong capacity, out ulong needed) =>
                            native.attn_binding_describe(Handle, buffer, capacity, out needed));
  }

  /// <summary>Gives the binding back and lets go of what it holds, after a call that uses it.
  /// </summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
