using System;
using AttnC.Native;

namespace AttnC {

/// <summary>A device with its options and caches; any threads at once. Operators, sessions, plans,
/// bindings, memory and streams keep what they need, so it may be disposed before them.</summary>
public sealed class Context : IDisposable {
  private readonly ContextHandle handle_;

  /// <summary>Opens a device; null is the CPU with defaults.</summary>
  public Context(ContextOptions options = null) {
    options = options ?? new ContextOptions();
    using (var callbacks = new Callbacks(options))
    using (var desc = new attn_context_desc()) {
      desc.device_type = options.CudaDevice.HasValue ? native.ATTN_DEVICE_CUDA
                                                     : native.ATTN_DEVICE_CPU;
      desc.device_id = options.CudaDevice ?? 0;
      desc.thread_count = options.ThreadCount;
      desc.flags = (options.IgnoreEnvironment ? native.ATTN_CONTEXT_IGNORE_ENVIRONMENT : 0) |
                   (options.NoDiskCache ? native.ATTN_CONTEXT_NO_DISK_CACHE : 0);
      desc.simd_level = Text.In(options.SimdLevel, "ContextOptions.SimdLevel");
      desc.engine = Text.In(options.Engine, "ContextOptions.Engine");
      desc.driver_path = Text.In(options.DriverPath, "ContextOptions.DriverPath");
      desc.nvrtc_path = Text.In(options.NvrtcPath, "ContextOptions.NvrtcPath");
      desc.cache_folder = Text.In(options.CacheFolder, "ContextOptions.CacheFolder");
      desc.cache_limit_bytes = options.CacheLimitBytes;
      desc.native_context = options.NativeContext;
      callbacks.Set(desc);
      IntPtr made;
      native.attn_context_create(desc, out made);
      callbacks.GiveAway();
      handle_ = new ContextHandle(made);
    }
  }

  internal ContextHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>What the context runs on.</summary>
  public ContextInfo Info {
    get {
      using (new Held(Handle))  // the texts live as long as the context
      using (var info = new attn_context_info()) {
        native.attn_context_get_info(handle_, info);
        return new ContextInfo(info);
      }
    }
  }

  /// <summary>Counters; each is exact, together they are no snapshot.</summary>
  public ContextStats Stats {
    get {
      using (var stats = new attn_context_stats()) {
        native.attn_context_get_stats(Handle, stats);
        return new ContextStats(stats);
      }
    }
  }

  /// <summary>Frees cached plans that nobody holds and scratch of idle sessions.</summary>
  public void Trim() { native.attn_context_trim(Handle); }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
