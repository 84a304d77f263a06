using System;
using System.Collections.Generic;
using AttnC.Native;

namespace AttnC {

/// <summary>Attributes of an operator by name.</summary>
public sealed class Attributes : IDisposable {
  internal readonly AttributeList List = new AttributeList();

  /// <summary>An integer.</summary>
  public Attributes Set(string name, long value) {
    List.add_int(name, value);
    return this;
  }

  /// <summary>A number; the standard has it as a float.</summary>
  public Attributes Set(string name, double value) {
    List.add_float(name, value);
    return this;
  }

  /// <summary>A text.</summary>
  public Attributes Set(string name, string value) {
    List.add_string(name, value);
    return this;
  }

  /// <summary>A list of integers.</summary>
  public Attributes Set(string name, long[] values) {
    List.add_ints(name, values);
    return this;
  }

  /// <summary>A list of numbers.</summary>
  public Attributes Set(string name, double[] values) {
    List.add_floats(name, values);
    return this;
  }

  /// <summary>Frees the list.</summary>
  public void Dispose() { List.Dispose(); }
}

/// <summary>The claim gate's answer.</summary>
public sealed class Support {
  internal Support(attn_support answer) {
    Supported = answer.supported != 0;
    Status = (Status)answer.status;
    CaptureFlags = answer.capture_flags;
    Reason = answer.reason;
  }

  /// <summary>It would run.</summary>
  public bool Supported { get; }
  /// <summary>What prepare would fail with.</summary>
  public Status Status { get; }
  /// <summary>ATTN_CAPTURE_... of attn_c.h.</summary>
  public uint CaptureFlags { get; }
  /// <summary>Argument, what came, what is accepted; empty when supported.</summary>
  public string Reason { get; }
}

/// <summary>What an output will be.</summary>
public sealed class Inferred {
  internal Inferred(attn_tensor tensor, bool depends) {
    Type = new ElementType(tensor.dtype.code, tensor.dtype.bits);
    Shape = new long[tensor.ndim];
    for (int axis = 0; axis < Shape.Length; ++axis) Shape[axis] = tensor.extent(axis);
    DependsOnValue = depends;
  }

  /// <summary>Its element type.</summary>
  public ElementType Type { get; }
  /// <summary>Sizes; -1 where a value decides.</summary>
  public long[] Shape { get; }
  /// <summary>A value that is not there decides a size.</summary>
  public bool DependsOnValue { get; }
}

/// <summary>What a plan is asked to serve beyond the tensors; zeros are defaults.</summary>
public sealed class PrepareOptions {
  /// <summary>A sequence's result does not depend on its batch.</summary>
  public bool BatchInvariant { get; set; }
  /// <summary>CUDA: float32 products may be rounded to TF32.</summary>
  public bool AllowTf32 { get; set; }
  /// <summary>CUDA: lengths on the device are checked by the host: slow.</summary>
  public bool CheckOnHost { get; set; }
  /// <summary>Forced by name; null is the context's choice.</summary>
  public string Engine { get; set; }
  /// <summary>The range that the plan serves; 0 is what the tensors have.</summary>
  public long MaxBatch { get; set; }
  /// <summary>New tokens of one sequence.</summary>
  public long MaxQueryLength { get; set; }
  /// <summary>Keys of one sequence.</summary>
  public long MaxTotalLength { get; set; }

  internal attn_prepare_desc Desc() {
    return new attn_prepare_desc {
      flags = (BatchInvariant ? 1u : 0u) | (AllowTf32 ? 2u : 0u) | (CheckOnHost ? 4u : 0u),
      engine = Engine,
      max_batch = MaxBatch,
      max_query_length = MaxQueryLength,
      max_total_length = MaxTotalLength
    };
  }
}

/// <summary>An operator with its attributes; any threads at once.</summary>
public sealed class Op : IDisposable {
  internal readonly OpHandle Handle;

  /// <summary>Checks name, version and every attribute. `label` is the node's name for
  /// messages.</summary>
  public Op(Context context, string domain, string type, int version, Attributes attributes = null,
            string label = null) {
    using (var desc = new attn_op_desc())
    using (var none = new Attributes()) {
      desc.domain = domain;
      desc.type = type;
      desc.version = version;
      desc.label = label;
      desc.set_attributes((attributes ?? none).List);
      IntPtr made;
      native.attn_op_create(context.Handle, desc, out made);
      Handle = new OpHandle(made);
      GC.KeepAlive(attributes);
    }
  }

  /// <summary>The claim gate: whether the operator would run. No data is touched.</summary>
  public Support Query(Arguments arguments, string engine = null) {
    using (var desc = new attn_query_desc())
    using (var answer = new attn_support()) {
      desc.set_arguments(arguments.Inputs, arguments.Outputs);
      desc.engine = engine;
      native.attn_op_query(Handle, desc, answer);
      GC.KeepAlive(arguments);
      return new Support(answer);
    }
  }

  /// <summary>Type and shape of the output in `slot` for these inputs.</summary>
  public Inferred InferOutput(Arguments arguments, uint slot) {
    using (var output = new attn_tensor()) {
      uint depends;
      native.attn_op_infer_output(Handle, arguments.Inputs, slot, output, out depends);
      GC.KeepAlive(arguments);
      return new Inferred(output, depends != 0);
    }
  }

  /// <summary>Plans the operator for a shape class; equal classes share one plan.</summary>
  public Plan Prepare(Arguments arguments, PrepareOptions options = null) {
    using (var desc = (options ?? new PrepareOptions()).Desc()) {
      desc.set_arguments(arguments.Inputs, arguments.Outputs);
      IntPtr made;
      native.attn_op_prepare(Handle, desc, out made);
      GC.KeepAlive(arguments);
      return new Plan(new PlanHandle(made));
    }
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { Handle.Dispose(); }
}

}  // namespace AttnC
