using System;
using System.Collections.Generic;
using AttnC.Native;

namespace AttnC {

/// <summary>An operator's tensors tied to a session, with the plan that fits them; one thread at a
/// time. It holds the arguments that were set, so that their arrays stay where they are.</summary>
public sealed class Binding : IDisposable {
  internal readonly BindingHandle Handle;
  private readonly Dictionary<long, Arguments> held_ = new Dictionary<long, Arguments>();

  private const long kAll = -1;          // set together
  private const long kOutput = 1L << 32;  // an output's slot, above those of inputs

  /// <summary>Ties an operator to a session, both of one context.</summary>
  public Binding(Op op, Session session) {
    IntPtr made;
    native.attn_binding_create(op.Handle, session.Handle, out made);
    Handle = new BindingHandle(made);
  }

  /// <summary>Binds one input; null unbinds.</summary>
  public void SetInput(uint slot, Tensor tensor) {
    var arguments = tensor == null ? null : new Arguments().Input(slot, tensor);
    try {
      native.attn_binding_set_input(Handle, slot,
                                    arguments == null ? null : arguments.Inputs.tensor(0));
      Hold(slot, arguments);
    } finally {
      if (arguments != null) arguments.Dispose();
    }
  }

  /// <summary>Binds one output; null unbinds.</summary>
  public void SetOutput(uint slot, Tensor tensor) {
    var arguments = tensor == null ? null : new Arguments().Output(slot, tensor);
    try {
      native.attn_binding_set_output(Handle, slot,
                                     arguments == null ? null : arguments.Outputs.tensor(0));
      Hold(kOutput + slot, arguments);
    } finally {
      if (arguments != null) arguments.Dispose();
    }
  }

  /// <summary>Replaces all tensors at once. On failure the old ones stay.</summary>
  public void SetTensors(Arguments arguments) {
    native.attn_binding_set_tensors(Handle, arguments.Inputs, arguments.Outputs);
    arguments.Hold();
    LetGo();
    held_[kAll] = arguments;
  }

  /// <summary>Finds or makes the plan for what is bound.</summary>
  public void Prepare(PrepareOptions options = null) {
    using (var desc = (options ?? new PrepareOptions()).Desc()) {
      native.attn_binding_prepare(Handle, desc);
    }
  }

  /// <summary>Runs what is bound.</summary>
  public void Execute(ExecuteOptions options = null) {
    native.attn_binding_execute(Handle, options == null ? null : options.Desc);
    GC.KeepAlive(this);
    GC.KeepAlive(options);
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

  private void Hold(long key, Arguments arguments) {
    Arguments old;
    if (held_.TryGetValue(key, out old)) old.LetGo();
    held_.Remove(key);
    if (arguments == null) return;
    arguments.Hold();
    held_[key] = arguments;
  }

  private void LetGo() {
    foreach (var arguments in held_.Values) arguments.LetGo();
    held_.Clear();
  }

  /// <summary>Gives the binding back, and lets go of its arguments.</summary>
  public void Dispose() {
    Handle.Dispose();
    LetGo();
  }
}

}  // namespace AttnC
