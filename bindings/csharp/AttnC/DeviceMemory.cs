using System;
using AttnC.Native;

namespace AttnC {

/// <summary>Memory on a context's device; the CPU gives host memory of every kind. It keeps what it
/// needs of the context. Arguments, bindings and options that use it hold it: it is freed when it
/// was disposed or collected and none of them uses it any more.</summary>
public sealed class DeviceMemory : IDisposable {
  private readonly MemoryHandle handle_;
  private readonly int deviceType_, deviceId_;

  /// <summary>Allocates bytes with arbitrary content.</summary>
  public DeviceMemory(Context context, long bytes, MemoryKind kind = MemoryKind.Device) {
    ContextHandle owner = Need.Of(context, nameof(context)).Handle;
    if (bytes < 0) {
      throw new ArgumentOutOfRangeException(nameof(bytes), bytes, "memory has 0 bytes or more");
    }
    var info = context.Info;
    bool host = info.DeviceType != native.ATTN_DEVICE_CUDA || kind == MemoryKind.Host;
    deviceType_ = host                        ? native.ATTN_DEVICE_CPU
                  : kind == MemoryKind.Device ? native.ATTN_DEVICE_CUDA
                                              : native.ATTN_DEVICE_CUDA_HOST;
    deviceId_ = host ? 0 : info.DeviceId;
    Bytes = bytes;
    handle_ = MemoryHandle.Allocate(owner, kind, bytes);
  }

  internal MemoryHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>Its size.</summary>
  public long Bytes { get; }

  /// <summary>Where it begins, on its device. Whoever uses the address keeps the memory.</summary>
  public IntPtr Address { get { return Handle.Address; } }

  /// <summary>A row-major tensor from its begin, which holds it.</summary>
  public Tensor Tensor(ElementType type, params long[] shape) {
    handle_.Check(this);
    return AttnC.Tensor.In(this, type, shape).On(deviceType_, deviceId_);
  }

  /// <summary>Copies an array to its begin and waits until that is done.</summary>
  public void Write(Array data, DeviceStream stream) { Copy(data, stream, true); }

  /// <summary>Copies its begin to an array and waits until that is done.</summary>
  public void Read(Array data, DeviceStream stream) { Copy(data, stream, false); }

  private void Copy(Array data, DeviceStream stream, bool write) {
    int bytes = Buffer.ByteLength(Need.Of(data, nameof(data)));
    StreamHandle order = Need.Of(stream, nameof(stream)).Handle;
    if (bytes > Bytes) {
      throw new ArgumentException("a copy of " + bytes + " bytes; the memory has " + Bytes,
                                  nameof(data));
    }
    using (new Held(Handle))
    using (new Held(order))
    using (var pin = PinHandle.Of(data)) {
      native.attn_host_memory_copy(handle_.Context, write ? handle_.Address : pin.Address,
                                   write ? pin.Address : handle_.Address, (ulong)bytes,
                                   order.Address);
      native.attn_host_stream_synchronize(order.Context, order.Address);
    }
  }

  /// <summary>Frees it when nothing that was made with it uses it, on CUDA after the device has
  /// ended its work.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
