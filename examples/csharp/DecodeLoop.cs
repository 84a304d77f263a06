using System;
using System.Collections.Generic;
using System.Linq;
using AttnC;

/// <summary>A decode loop: a prompt, then single tokens with the cache in place, checked against
/// one call over all tokens. With --cuda on device 0, where the step is captured once and then
/// replayed, with other lengths in device memory each time.</summary>
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

  /// <summary>Feeds tokens and runs them at once.</summary>
  static float[] Run(Op op, Session session, DeviceStream stream, Sequence sequence,
                     float[] tokens) {
    int rows = tokens.Length / kWidth;
    sequence.Feed(tokens, 0, stream);
    using (var arguments = sequence.Arguments(rows))
    using (var plan = op.Prepare(arguments))
    using (var options = new ExecuteOptions { Stream = stream.Address }) {
      plan.Execute(session, arguments, options);
    }
    return sequence.Output(rows, stream);
  }

  /// <summary>Single tokens from `past` on: one plan, launched or captured and replayed.</summary>
  static IEnumerable<float> Decode(Op op, Session session, DeviceStream stream, Sequence sequence,
                                   float[] all, bool capture) {
    using (var arguments = sequence.Arguments(1))
    using (var plan = op.Prepare(arguments))
    using (var options = new ExecuteOptions { Stream = stream.Address }) {
      Graph graph = null;
      if (capture) {
        stream.BeginCapture();
        plan.Execute(session, arguments, options);
        graph = stream.EndCapture();
      }
      var output = new List<float>();
      for (int token = kPrompt; token < kTokens; ++token) {
        sequence.Feed(all.Skip(token * kWidth).Take(kWidth).ToArray(), token, stream);
        if (graph != null) {
          graph.Launch(stream);
        } else {
          plan.Execute(session, arguments, options);
        }
        output.AddRange(sequence.Output(1, stream));
      }
      if (graph != null) graph.Dispose();
      return output;
    }
  }

  static int Main(string[] words) {
    bool cuda = words.Contains("--cuda");
    try {
      using (var context = new Context(new ContextOptions { CudaDevice = cuda ? 0 : (int?)null }))
      using (var heads = new Attributes().Set("num_heads", kHeads).Set("kv_num_heads", kKvHeads))
      using (var op = new Op(context, "com.microsoft", "GroupQueryAttention", 1, heads, "layer 0"))
      using (var session = new Session(context, "decode"))
      using (var stream = new DeviceStream(context))
      using (var whole = new Sequence(context))
      using (var sequence = new Sequence(context)) {
        Console.WriteLine(context.Info.DeviceName + " with attn_c " + Library.Version);
        float[] all = Tokens();
        float[] expected = Run(op, session, stream, whole, all);
        var got = Run(op, session, stream, sequence, all.Take(kPrompt * kWidth).ToArray())
            .Concat(Decode(op, session, stream, sequence, all, cuda)).ToArray();
        float difference = expected.Zip(got, (a, b) => Math.Abs(a - b)).Max();
        bool good = got.Length == expected.Length && difference < 1e-5;
        Console.WriteLine(kTokens + " tokens, largest difference " + difference.ToString("e2") +
                          (good ? ": decode loop OK" : ": too much"));
        return good ? 0 : 1;
      }
    } catch (AttnException error) {
      Console.WriteLine(error.Message);
      return 1;
    }
  }
}
