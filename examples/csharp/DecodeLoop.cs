using System;
using System.Collections.Generic;
using System.Linq;
using AttnC;

/// <summary>A decode loop: a prompt, then single tokens with the cache in place, checked against
/// one call over all tokens on the CPU. With --cuda on device 0, where a step is captured once and
/// then replayed, with another length in device memory each time, and gives the bits of steps that
/// are launched one by one. Ends with "demo: OK" and 0, or says what differs and ends with 1.
/// </summary>
static class DecodeLoop {
  const int kHeads = 4, kKvHeads = 2, kSize = 64, kPrompt = 5, kTokens = 13, kCapacity = 32;
  const int kWidth = (kHeads + 2 * kKvHeads) * kSize;

  /// <summary>Memory of a sequence: its cache, its length, and the tokens of one call.</summary>
  sealed class Sequence : IDisposable {
    readonly DeviceMemory qkv_, last_, keys_, values_, out_;
    readonly int[] bound_ = { kCapacity };

    public Sequence(Context context) {
      qkv_ = new DeviceMemory(context, 4 * kTokens * kWidth);
      last_ = new DeviceMemory(context, 4);
      keys_ = new DeviceMemory(context, 4 * kKvHeads * kCapacity * kSize);
      values_ = new DeviceMemory(context, 4 * kKvHeads * kCapacity * kSize);
      out_ = new DeviceMemory(context, 4 * kTokens * kHeads * kSize);
    }

    /// <summary>The tensors of a call over `rows` tokens.</summary>
    public Arguments Arguments(int rows) {
      var type = ElementType.Float32;
      return new Arguments()
          .Input(0, qkv_.Tensor(type, 1, rows, kWidth))
          .InPlace(3, 1, keys_.Tensor(type, 1, kKvHeads, kCapacity, kSize))
          .InPlace(4, 2, values_.Tensor(type, 1, kKvHeads, kCapacity, kSize))
          .Input(5, last_.Tensor(ElementType.Int32, 1))
          .Input(6, Tensor.Of(bound_, 1))
          .Output(0, out_.Tensor(type, 1, rows, kHeads * kSize));
    }

    /// <summary>Takes tokens as the next ones, after `past` others.</summary>
    public void Feed(float[] tokens, int past, DeviceStream stream) {
      qkv_.Write(tokens, stream);
      last_.Write(new[] { past + tokens.Length / kWidth - 1 }, stream);
    }

    public float[] Output(int rows, DeviceStream stream) {
      var output = new float[rows * kHeads * kSize];
      out_.Read(output, stream);
      return output;
    }

    public void Dispose() {
      foreach (var memory in new[] { qkv_, last_, keys_, values_, out_ }) memory.Dispose();
    }
  }

  /// <summary>Numbers between -1 and 1, the same each time.</summary>
  static float[] Tokens() {
    uint state = 1;
    return Enumerable.Range(0, kTokens * kWidth).Select(_ => {
      state = unchecked(state * 1664525 + 1013904223);
      return (state >> 8) / 8388608.0f - 1;
    }).ToArray();
  }

  /// <summary>What runs the calls of one operator on one device.</summary>
  sealed class Runner : IDisposable {
    readonly Context context_;
    readonly Op op_;
    readonly Session session_;
    readonly DeviceStream stream_;

    public Runner(int? device) {
      context_ = new Context(new ContextOptions { CudaDevice = device });
      using (var heads = new Attributes().Set("num_heads", kHeads).Set("kv_num_heads", kKvHeads)) {
        op_ = new Op(context_, "com.microsoft", "GroupQueryAttention", 1, heads, "layer 0");
      }
      session_ = new Session(context_, "decode");
      stream_ = new DeviceStream(context_);
    }

    public string Device { get { return context_.Info.DeviceName; } }

    public Sequence Sequence() { return new Sequence(context_); }

    /// <summary>Feeds tokens and runs them at once.</summary>
    public float[] Run(Sequence sequence, float[] tokens) {
      int rows = tokens.Length / kWidth;
      sequence.Feed(tokens, 0, stream_);
      using (var arguments = sequence.Arguments(rows))
      using (var plan = op_.Prepare(arguments))
      using (var options = new ExecuteOptions()) {
        options.SetStream(stream_);
        plan.Execute(session_, arguments, options);
      }
      return sequence.Output(rows, stream_);
    }

    /// <summary>The prompt, then single tokens by one plan. The first of them is launched, so that
    /// the session has the scratch that a capture may use; the others are launched as well, or
    /// captured once and replayed.</summary>
    public float[] Decode(float[] all, bool capture) {
      using (var sequence = Sequence())
      using (var arguments = sequence.Arguments(1))
      using (var plan = op_.Prepare(arguments))
      using (var options = new ExecuteOptions()) {
        options.SetStream(stream_);
        var output = Run(sequence, all.Take(kPrompt * kWidth).ToArray()).ToList();
        Graph graph = null;
        for (int token = kPrompt; token < kTokens; ++token) {
          if (capture && token == kPrompt + 1) {
            stream_.BeginCapture();
            plan.Execute(session_, arguments, options);
            graph = stream_.EndCapture();
          }
          sequence.Feed(all.Skip(token * kWidth).Take(kWidth).ToArray(), token, stream_);
          if (graph != null) {
            graph.Launch(stream_);
          } else {
            plan.Execute(session_, arguments, options);
          }
          output.AddRange(sequence.Output(1, stream_));
        }
        if (graph != null) graph.Dispose();
        return output.ToArray();
      }
    }

    public void Dispose() {
      stream_.Dispose();
      session_.Dispose();
      op_.Dispose();
      context_.Dispose();
    }
  }

  /// <summary>What differs, in words; null is nothing.</summary>
  static string Difference(bool cuda) {
    float[] all = Tokens(), expected;
    using (var cpu = new Runner(null))
    using (var whole = cpu.Sequence()) {
      expected = cpu.Run(whole, all);
    }
    using (var runner = new Runner(cuda ? 0 : (int?)null)) {
      Console.WriteLine(runner.Device + " with attn_c " + Library.Version);
      var launched = runner.Decode(all, false);
      float[] replayed = null;
      if (cuda) {
        replayed = runner.Decode(all, true);
        Console.WriteLine("one step captured, " + (kTokens - kPrompt - 1) + " replayed");
      }
      // A number that is none is as far off as can be.
      float difference = expected.Zip(launched, (a, b) => Math.Abs(a - b))
          .Max(one => float.IsNaN(one) ? float.PositiveInfinity : one);
      string words = "largest difference from one call over all tokens on the CPU: " +
                     difference.ToString("e2");
      if (difference >= 1e-5) return words;
      Console.WriteLine(kTokens + " tokens, " + words);
      if (!cuda) return null;
      int other = launched.Zip(replayed, (a, b) => a.Equals(b)).Count(same => !same);
      if (other != 0) return other + " numbers of replayed steps are not those of launched ones";
      Console.WriteLine("replayed steps give the bits of launched ones");
      return null;
    }
  }

  static int Main(string[] words) {
    string wrong;
    try {
      wrong = Difference(words.Contains("--cuda"));
    } catch (AttnException error) {
      wrong = error.Message;
    }
    Console.WriteLine(wrong == null ? "demo: OK" : wrong + "\ndemo: FAILED");
    return wrong == null ? 0 : 1;
  }
}
