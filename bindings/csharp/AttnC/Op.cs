using System;
using AttnC.Native;

namespace AttnC {

/// <summary>An operator with its attributes; any threads at once.</summary>
public sealed class Op : IDisposable {
  private readonly OpHandle handle_;

  /// <summary>Checks name, version and every attribute. A null `domain` is "ai.onnx"; `label` is
  /// the node's name for messages.</summary>
  public Op(Context context, string domain, string type, int version, Attributes attributes = null,
            string label = null) {
    ContextHandle owner = Need.Of(context, nameof(context)).Handle;
    using (var desc = new attn_op_desc()) {
      desc.domain = Text.In(domain, "the operator's domain");
      desc.type = Text.In(Need.Of(type, nameof(type)), "the operator's type");
      desc.version = version;
      desc.label = Text.In(label, "the operator's label");
      Owned<AttributeList> list = attributes == null ? null : attributes.Handle;
      using (new Held(list)) {
        if (list != null) desc.set_attributes(list.Value);
        IntPtr made;
        native.attn_op_create(owner, desc, out made);
        handle_ = new OpHandle(made);
      }
    }
  }

  internal OpHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>The claim gate: whether the operator would run. No data is touched.</summary>
  public Support Query(Arguments arguments, string engine = null) {
    ArgumentsHandle call = Need.Of(arguments, nameof(arguments)).Handle;
    using (new Held(call))
    using (var desc = new attn_query_desc())
    using (var answer = new attn_support()) {
      desc.set_arguments(call.Inputs, call.Outputs);
      desc.engine = Text.In(engine, "the engine's name");
      native.attn_op_query(Handle, desc, answer);
      return new Support(answer);
    }
  }

  /// <summary>Type and shape of the output in `slot` for these inputs.</summary>
  public Inferred InferOutput(Arguments arguments, uint slot) {
    ArgumentsHandle call = Need.Of(arguments, nameof(arguments)).Handle;
    using (new Held(call))
    using (var output = new attn_tensor()) {
      uint depends;
      native.attn_op_infer_output(Handle, call.Inputs, slot, output, out depends);
      return new Inferred(output, depends != 0);
    }
  }

  /// <summary>Plans the operator for a shape class; equal classes share one plan.</summary>
  public Plan Prepare(Arguments arguments, PrepareOptions options = null) {
    ArgumentsHandle call = Need.Of(arguments, nameof(arguments)).Handle;
    using (new Held(call))
    using (var desc = (options ?? new PrepareOptions()).Desc()) {
      desc.set_arguments(call.Inputs, call.Outputs);
      IntPtr made;
      native.attn_op_prepare(Handle, desc, out made);
      return new Plan(new PlanHandle(made));
    }
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
