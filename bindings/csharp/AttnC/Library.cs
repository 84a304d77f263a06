using System.Collections.Generic;
using AttnC.Native;

namespace AttnC {

/// <summary>A device of this machine.</summary>
public sealed class DeviceInfo {
  /// <summary>A context can be made; otherwise Reason says why not.</summary>
  public bool Available { get; internal set; }
  /// <summary>DLPack's code: 1 CPU, 2 CUDA.</summary>
  public int DeviceType { get; internal set; }
  /// <summary>Its number among devices of its type.</summary>
  public int DeviceId { get; internal set; }
  /// <summary>For people.</summary>
  public string Name { get; internal set; }
  /// <summary>With every place that was tried; empty where available.</summary>
  public string Reason { get; internal set; }
}

/// <summary>An input or output of an operator.</summary>
public sealed class SlotInfo {
  internal SlotInfo(attn_slot_info info) {
    Slot = info.slot;
    Optional = info.optional != 0;
    Memory = info.memory;
    MayAlias = info.may_alias;
    Name = info.name;
    Types = Text.List(info.types);
    Shape = info.shape;
  }

  /// <summary>The number by which it is bound.</summary>
  public uint Slot { get; }
  /// <summary>It may be absent.</summary>
  public bool Optional { get; }
  /// <summary>Accepted kinds of memory of a CUDA context, as bits of MemoryKind.</summary>
  public uint Memory { get; }
  /// <summary>Of outputs: the input whose memory it may share; -1 is none.</summary>
  public int MayAlias { get; }
  /// <summary>In the standard.</summary>
  public string Name { get; }
  /// <summary>Accepted element types.</summary>
  public string[] Types { get; }
  /// <summary>With the letters of the documentation.</summary>
  public string Shape { get; }
}

/// <summary>An attribute of an operator.</summary>
public sealed class AttributeInfo {
  internal AttributeInfo(attn_attribute_info info) {
    Kind = info.type;
    Required = info.required != 0;
    Name = info.name;
    DefaultText = info.default_text;
    Summary = info.summary;
  }

  /// <summary>1 int, 2 float, 3 string, 4 ints, 5 floats.</summary>
  public uint Kind { get; }
  /// <summary>There is no default.</summary>
  public bool Required { get; }
  /// <summary>In the standard.</summary>
  public string Name { get; }
  /// <summary>Empty for required ones.</summary>
  public string DefaultText { get; }
  /// <summary>What it does.</summary>
  public string Summary { get; }
}

/// <summary>An operator that the library knows.</summary>
public sealed class OperatorInfo {
  internal OperatorInfo(uint index) {
    using (var info = new attn_operator_info()) {
      native.attn_operator_get_info(index, info);
      Domain = info.domain;
      Name = info.type;
      Summary = info.summary;
      VersionFirst = info.version_first;
      VersionLast = info.version_last;
      var inputs = new List<SlotInfo>();
      var outputs = new List<SlotInfo>();
      var attributes = new List<AttributeInfo>();
      using (var slot = new attn_slot_info()) {
        for (uint at = 0; at < info.input_count; ++at) {
          native.attn_operator_get_input(index, at, slot);
          inputs.Add(new SlotInfo(slot));
        }
        for (uint at = 0; at < info.output_count; ++at) {
          native.attn_operator_get_output(index, at, slot);
          outputs.Add(new SlotInfo(slot));
        }
      }
      using (var attribute = new attn_attribute_info()) {
        for (uint at = 0; at < info.attribute_count; ++at) {
          native.attn_operator_get_attribute(index, at, attribute);
          attributes.Add(new AttributeInfo(attribute));
        }
      }
      Inputs = inputs;
      Outputs = outputs;
      Attributes = attributes;
    }
  }

  /// <summary>Of the operator set.</summary>
  public string Domain { get; }
  /// <summary>In the standard.</summary>
  public string Name { get; }
  /// <summary>What it computes.</summary>
  public string Summary { get; }
  /// <summary>The first version that means this contract.</summary>
  public int VersionFirst { get; }
  /// <summary>The last one.</summary>
  public int VersionLast { get; }
  /// <summary>Optional ones included.</summary>
  public IReadOnlyList<SlotInfo> Inputs { get; }
  /// <summary>Optional ones included.</summary>
  public IReadOnlyList<SlotInfo> Outputs { get; }
  /// <summary>All that it may have.</summary>
  public IReadOnlyList<AttributeInfo> Attributes { get; }
}

/// <summary>What can be asked without a context; any threads at once.</summary>
public static class Library {
  /// <summary>The slot of log-sum-exp, an output of every softmax operator.</summary>
  public const uint LogSumExpSlot = native.ATTN_SLOT_LOG_SUM_EXP;

  /// <summary>"major.minor.patch"</summary>
  public static string Version { get { return native.attn_version(); } }
  /// <summary>The interface: major number in the high 16 bits.</summary>
  public static uint AbiVersion { get { return native.attn_abi_version(); } }

  /// <summary>The devices of this machine; those that cannot be used say why.</summary>
  public static IReadOnlyList<DeviceInfo> Devices() {
    uint count;
    native.attn_device_count(out count);
    var list = new List<DeviceInfo>();
    using (var info = new attn_device_info()) {
      for (uint index = 0; index < count; ++index) {
        native.attn_device_get_info(index, info);
        list.Add(new DeviceInfo { Available = info.available != 0, DeviceType = info.device_type,
                                  DeviceId = info.device_id, Name = info.name,
                                  Reason = info.reason });
      }
    }
    return list;
  }

  /// <summary>The operators that the library knows.</summary>
  public static IReadOnlyList<OperatorInfo> Operators() {
    uint count;
    native.attn_operator_count(out count);
    var list = new List<OperatorInfo>();
    for (uint index = 0; index < count; ++index) list.Add(new OperatorInfo(index));
    return list;
  }

  /// <summary>The rules behind fault bits in words.</summary>
  public static string FaultText(uint bits) {
    return Text.Fetched((byte[] buffer, ulong capacity, out ulong needed) =>
                            native.attn_fault_text(bits, buffer, capacity, out needed));
  }
}

}  // namespace AttnC
