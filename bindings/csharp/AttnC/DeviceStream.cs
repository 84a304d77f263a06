using System;
using AttnC.Native;

namespace AttnC {

/// <summary>A stream of a context's device; the CPU's is null. It keeps what it needs of the
/// context.</summary>
public sealed class DeviceStream : IDisposable {
  private readonly StreamHandle handle_;

  /// <summary>Creates a stream of the context's device.</summary>
  public DeviceStream(Context context) {
    handle_ = StreamHandle.Create(Need.Of(context, nameof(context)).Handle);
  }

  internal StreamHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>For ExecuteOptions.Stream and other libraries. Whoever uses it keeps the stream.
  /// </summary>
  public IntPtr Address { get { return Handle.Address; } }

  /// <summary>Waits until everything in the stream has ended.</summary>
  public void Synchronize() {
    using (new Held(Handle)) {
      native.attn_host_stream_synchronize(handle_.Context, handle_.Address);
    }
  }

  /// <summary>Begins to capture what is launched in the stream.</summary>
  public void BeginCapture() {
    using (new Held(Handle)) {
      native.attn_host_graph_begin_capture(handle_.Context, handle_.Address);
    }
  }

  /// <summary>Ends the capture and makes a graph.</summary>
  public Graph EndCapture() {
    using (new Held(Handle)) {
      IntPtr made;
      native.attn_host_graph_end_capture(handle_.Context, handle_.Address, out made);
      return new Graph(new GraphHandle(made));
    }
  }

  /// <summary>Releases the stream when no call and no options use it.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
