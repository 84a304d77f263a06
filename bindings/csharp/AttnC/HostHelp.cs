using System;
using System.Threading;
using AttnC.Native;

namespace AttnC {

/// <summary>Where memory lies.</summary>
public enum MemoryKind : uint {
  /// <summary>The host's.</summary>
  Host = 1,
  /// <summary>The device's.</summary>
  Device = 2,
  /// <summary>The host's, pinned for the device.</summary>
  Pinned = 4
}

/// <summary>Memory on a context's device; the CPU gives host memory of every kind. It keeps the
/// context.</summary>
public sealed class DeviceMemory : IDisposable {
  private readonly Context context_;
  private readonly MemoryKind kind_;
  private readonly int deviceType_, deviceId_;
  private IntPtr address_;

  /// <summary>Allocates bytes with arbitrary content.</summary>
  public DeviceMemory(Context context, long bytes, MemoryKind kind = MemoryKind.Device) {
    context_ = context;
    kind_ = kind;
    Bytes = bytes;
    native.attn_host_memory_alloc(context.Handle, (uint)kind, (ulong)bytes, out address_);
    var info = context.Info;
    deviceType_ = info.DeviceType != 2 || kind == MemoryKind.Host ? 1
                  : kind == MemoryKind.Device                     ? 2
                                                                  : 3;
    deviceId_ = deviceType_ == 1 ? 0 : info.DeviceId;
    // It is little for the collector, whatever lies behind it.
    if (bytes > 0) GC.AddMemoryPressure(bytes);
  }

  /// <summary>Its size.</summary>
  public long Bytes { get; }
  /// <summary>Where it begins, on its device.</summary>
  public IntPtr Address { get { return address_; } }

  /// <summary>A row-major tensor from its begin.</summary>
  public Tensor Tensor(ElementType type, params long[] shape) {
    return AttnC.Tensor.At(type, address_, shape).On(deviceType_, deviceId_);
  }

  /// <summary>Copies an array to its begin and waits until that is done.</summary>
  public unsafe void Write(Array data, DeviceStream stream) {
    Check(data);
    var pin = System.Runtime.InteropServices.GCHandle.Alloc(
        data, System.Runtime.InteropServices.GCHandleType.Pinned);
    try {
      native.attn_host_memory_copy(context_.Handle, address_, pin.AddrOfPinnedObject(),
                                   (ulong)Buffer.ByteLength(data), stream.Address);
      stream.Synchronize();
    } finally {
      pin.Free();
    }
  }

  /// <summary>Copies its begin to an array and waits until that is done.</summary>
  public void Read(Array data, DeviceStream stream) {
    Check(data);
    var pin = System.Runtime.InteropServices.GCHandle.Alloc(
        data, System.Runtime.InteropServices.GCHandleType.Pinned);
    try {
      native.attn_host_memory_copy(context_.Handle, pin.AddrOfPinnedObject(), address_,
                                   (ulong)Buffer.ByteLength(data), stream.Address);
      stream.Synchronize();
    } finally {
      pin.Free();
    }
  }

  private void Check(Array data) {
    if (Buffer.ByteLength(data) <= Bytes) return;
    throw new ArgumentException("a copy of " + Buffer.ByteLength(data) + " bytes; the memory has " +
                                Bytes);
  }

  /// <summary>Frees it, on CUDA after the device has ended its work.</summary>
  public void Dispose() {
    Free();
    GC.SuppressFinalize(this);
  }

  /// <summary>Frees what nobody disposed.</summary>
  ~DeviceMemory() { Free(); }

  private void Free() {
    IntPtr address = Interlocked.Exchange(ref address_, IntPtr.Zero);
    // The context's own handle may have been finalised in the same collection.
    if (address == IntPtr.Zero || context_.Handle.IsClosed) return;
    native.attn_host_memory_free(context_.Handle, (uint)kind_, address);
    if (Bytes > 0) GC.RemoveMemoryPressure(Bytes);
  }
}

/// <summary>A stream of a context's device; the CPU's is null. It keeps the context.</summary>
public sealed class DeviceStream : IDisposable {
  private readonly Context context_;
  private IntPtr stream_;
  private int disposed_;

  /// <summary>Creates a stream of the context's device.</summary>
  public DeviceStream(Context context) {
    context_ = context;
    native.attn_host_stream_create(context.Handle, out stream_);
  }

  /// <summary>For ExecuteOptions.Stream.</summary>
  public IntPtr Address { get { return stream_; } }

  /// <summary>Waits until everything in the stream has ended.</summary>
  public void Synchronize() { native.attn_host_stream_synchronize(context_.Handle, stream_); }

  /// <summary>Begins to capture what is launched in the stream.</summary>
  public void BeginCapture() { native.attn_host_graph_begin_capture(context_.Handle, stream_); }

  /// <summary>Ends the capture and makes a graph.</summary>
  public Graph EndCapture() {
    IntPtr made;
    native.attn_host_graph_end_capture(context_.Handle, stream_, out made);
    return new Graph(new GraphHandle(made));
  }

  /// <summary>Releases the stream.</summary>
  public void Dispose() {
    if (Interlocked.Exchange(ref disposed_, 1) != 0) return;
    native.attn_host_stream_release(context_.Handle, stream_);
  }
}

/// <summary>An instantiated graph of captured executions; one thread at a time.</summary>
public sealed class Graph : IDisposable {
  private readonly GraphHandle handle_;

  internal Graph(GraphHandle owned) { handle_ = owned; }

  /// <summary>Launches the graph; the memory that it captured must still be there.</summary>
  public void Launch(DeviceStream stream) {
    native.attn_host_graph_launch(handle_, stream.Address);
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
