using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace AttnC {

/// <summary>An array that the collector does not move while somebody holds it.</summary>
internal sealed class PinHandle : ObjectHandle {
  private PinHandle(IntPtr pin) : base(pin) {}

  /// <summary>Pins an array; first of all, because a handle that was never made whole must not be
  /// finalised.</summary>
  internal static PinHandle Of(Array array) {
    return new PinHandle(GCHandle.ToIntPtr(GCHandle.Alloc(array, GCHandleType.Pinned)));
  }

  internal IntPtr Address { get { return GCHandle.FromIntPtr(handle).AddrOfPinnedObject(); } }

  protected override bool ReleaseHandle() {
    GCHandle.FromIntPtr(handle).Free();
    return true;
  }
}

/// <summary>What tensors lie in, by slot: arrays that are pinned, and memory of a device. Threads:
/// one at a time.</summary>
internal sealed class HeldMemory {
  /// <summary>The slots of outputs lie above those of inputs.</summary>
  internal const long Output = 1L << 32;

  private readonly List<KeyValuePair<long, ObjectHandle>> held_ =
      new List<KeyValuePair<long, ObjectHandle>>();

  /// <summary>Holds the memory of one more tensor.</summary>
  internal void Add(long slot, ObjectHandle memory) {
    bool held = false;
    memory.DangerousAddRef(ref held);
    held_.Add(new KeyValuePair<long, ObjectHandle>(slot, memory));
  }

  /// <summary>Holds all that another one holds, in the place of its own.</summary>
  internal void Replace(HeldMemory other) {
    var old = held_.ToArray();
    held_.Clear();
    foreach (var one in other.held_) Add(one.Key, one.Value);
    LetGo(old);
  }

  /// <summary>Holds what another one, of this slot alone, holds; null is nothing.</summary>
  internal void Replace(long slot, HeldMemory other) {
    var old = held_.FindAll(one => one.Key == slot).ToArray();
    held_.RemoveAll(one => one.Key == slot);
    if (other != null) {
      foreach (var one in other.held_) Add(one.Key, one.Value);
    }
    LetGo(old);
  }

  /// <summary>Lets go of everything.</summary>
  internal void LetGo() {
    var old = held_.ToArray();
    held_.Clear();
    LetGo(old);
  }

  private static void LetGo(KeyValuePair<long, ObjectHandle>[] old) {
    foreach (var one in old) one.Value.DangerousRelease();
  }
}

}  // namespace AttnC
