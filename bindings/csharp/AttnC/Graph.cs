using System;
using AttnC.Native;

namespace AttnC {

/// <summary>An instantiated graph of captured executions; one thread at a time. It does not hold
/// the memory that it captured.</summary>
public sealed class Graph : IDisposable {
  private readonly GraphHandle handle_;

  internal Graph(GraphHandle owned) { handle_ = owned; }

  /// <summary>Launches the graph; the memory that it captured must still be there.</summary>
  public void Launch(DeviceStream stream) {
    StreamHandle order = Need.Of(stream, nameof(stream)).Handle;
    handle_.Check(this);
    using (new Held(order)) native.attn_host_graph_launch(handle_, order.Address);
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
