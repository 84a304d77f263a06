using System;
using System.Linq;
using System.Reflection;
using AttnC;

/// <summary>What is wrong with an argument is said in words, before anything is read or written.
/// </summary>
static partial class Tests {
  /// <summary>An ArgumentException that says all of these words.</summary>
  private static void Says(Action action, params string[] words) {
    var error = Throws<ArgumentException>(action);
    foreach (string word in words) Expect(error.Message.Contains(word), error.Message);
  }

  public static void EveryStatusHasAnException() {
    var native = typeof(Context).Assembly.GetType("AttnC.Native.native");
    var make = typeof(AttnException).GetMethod("Make",
                                               BindingFlags.Static | BindingFlags.NonPublic);
    var all = Enum.GetValues(typeof(Status)).Cast<Status>();
    var seen = all.ToDictionary(status => status, status => {
      string name = string.Concat(status.ToString().Select(
          (one, at) => at > 0 && char.IsUpper(one) ? "_" + one : one.ToString()));
      Expect((int)native.GetField("ATTN_" + name.ToUpperInvariant()).GetValue(null) == (int)status,
             name + " is the header's");
      var made = (AttnException)make.Invoke(null, new object[] { (int)status, 7L, 1u, 2u,
                                                                 IntPtr.Zero });
      Expect(made.Status == status && made.NativeCode == 7 && made.NativeDomain == 1 && made.Sticky,
             "what native code said");
      return made.GetType();
    });
    seen.Remove(Status.Ok);
    Expect(seen.Count == 12 && seen.Values.Distinct().Count() == 12, "a class for each");
    Expect(seen.Values.All(one => one.IsSealed && one.Name.EndsWith("Exception")), "of its own");
  }

  public static unsafe void KnownSizesAreKept() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var small = new DeviceMemory(context, 16))
    using (var none = new DeviceMemory(context, 0)) {
      var step = new Step();
      var sevens = Enumerable.Repeat(7.0f, 16).ToArray();
      Action<Tensor, Tensor> refused = (input, output) => {
        using (var good = step.Arguments())
        using (var arguments = new Arguments().Input(0, input ?? Tensor.Of(step.Qkv, 1, 3, 16))
                   .Input(5, Tensor.Of(step.Last, 1)).Input(6, Tensor.Of(step.Total))
                   .Output(0, output ?? Tensor.Of(step.Out, 1, 3, 8)))
        using (var plan = op.Prepare(good))
        using (var binding = new Binding(op, session)) {
          string name = input != null ? "query" : "output";
          foreach (var call in new Action[] { () => plan.Execute(session, arguments),
                                              () => binding.SetTensors(arguments),
                                              () => op.Prepare(arguments) }) {
            var error = Throws<InvalidArgumentException>(call);
            Expect(error.Message.Contains(name) && error.Message.Contains("data_bytes"),
                   error.Message);
          }
        }
      };
      fixed (float* four = sevens) {
        refused(null, Tensor.OfSpan(new Span<float>(four, 4), 1, 3, 8));
        refused(Tensor.OfSpan(new Span<float>(four, 4), 1, 3, 16), null);
      }
      Expect(sevens.All(one => one == 7), "nothing was written behind the span");
      refused(null, small.Tensor(ElementType.Float32, 1, 3, 8));
      refused(null, Tensor.Of(new float[23], 1, 3, 8));
      refused(Tensor.Of(new float[48], 1, 3, 16).AtByte(4), null);
      refused(Tensor.Of(new float[48], 1, 3, 16).WithStrides(48, -16, 1), null);
      Says(() => new Arguments().Output(0, Tensor.OfSpan(Span<float>.Empty, 1, 3, 8)), "output 0",
           "[1, 3, 8]", "0 bytes");
      Says(() => new Arguments().Input(2, none.Tensor(ElementType.Float32, 1)), "input 2", "[1]");
      Says(() => new Arguments().Input(2, Tensor.Of(new float[0], 1)), "input 2", "[1]");
      new Arguments().Input(2, Tensor.Of(new float[0], 0, 4)).Dispose();
    }
  }

  public static void TextsThatAreNoneInCAreRefused() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var arguments = new Step().Arguments()) {
      Says(() => new Attributes().Set("num_heads\0junk", 2), "attribute's name", "character 9");
      Says(() => new Attributes().Set("a\0", 2.0), "attribute's name");
      Says(() => new Attributes().Set("a\0", "b"), "attribute's name");
      Says(() => new Attributes().Set("a\0", new long[1]), "attribute's name");
      Says(() => new Attributes().Set("a\0", new double[1]), "attribute's name");
      Says(() => new Attributes().Set("k_quant_type", "NONE\0"), "'k_quant_type'", "character 4");
      Says(() => new Op(context, "com.microsoft\0x", "GroupQueryAttention", 1), "domain");
      Says(() => new Op(context, "com.microsoft", "GroupQueryAttention\0y", 1), "type");
      Says(() => new Op(context, "com.microsoft", "GroupQueryAttention", 1, null, "a\0"), "label");
      Says(() => new Session(context, "a\0"), "label");
      Says(() => new Session(context, "a\ud800b"), "label", "character 1");
      Says(() => new Session(context, "a\udc00"), "label", "character 1");
      Says(() => new Session(context, "\ud800"), "label", "character 0");
      new Session(context, "\ud83d\ude00 \u00e4").Dispose();
      Says(() => op.Query(arguments, "generic\0"), "engine");
      Says(() => op.Prepare(arguments, new PrepareOptions { Engine = "generic\0" }), "Engine");
      Says(() => new Context(new ContextOptions { Engine = "generic\0" }), "Engine");
      Says(() => new Context(new ContextOptions { SimdLevel = "avx2\0" }), "SimdLevel");
      Says(() => new Context(new ContextOptions { DriverPath = "a\0" }), "DriverPath");
      Says(() => new Context(new ContextOptions { NvrtcPath = "a\0" }), "NvrtcPath");
      Says(() => new Context(new ContextOptions { CacheFolder = "a\0" }), "CacheFolder");
    }
  }

  private static void Null(string name, Action action) {
    var error = Throws<ArgumentNullException>(action);
    Expect(error.ParamName == name, error.Message);
  }

  public static void NullsAreNamed() {
    using (var context = QuietContext())
    using (var op = Attention(context))
    using (var session = new Session(context))
    using (var binding = new Binding(op, session))
    using (var stream = new DeviceStream(context))
    using (var memory = new DeviceMemory(context, 64))
    using (var options = new ExecuteOptions())
    using (var arguments = new Step().Arguments())
    using (var plan = op.Prepare(arguments)) {
      Null("tensor", () => arguments.Input(0, null));
      Null("tensor", () => arguments.Output(0, null));
      Null("tensor", () => arguments.InPlace(3, 1, null));
      Null("name", () => new Attributes().Set(null, 1L));
      Null("name", () => new Attributes().Set(null, 1.0));
      Null("name", () => new Attributes().Set(null, "a"));
      Null("value", () => new Attributes().Set("a", (string)null));
      Null("values", () => new Attributes().Set("a", (long[])null));
      Null("values", () => new Attributes().Set("a", (double[])null));
      Null("context", () => new Op(null, "ai.onnx", "Attention", 24));
      Null("type", () => new Op(context, "ai.onnx", null, 24));
      Null("context", () => new Session(null));
      Null("context", () => new DeviceMemory(null, 1));
      Null("context", () => new DeviceStream(null));
      Null("op", () => new Binding(null, session));
      Null("session", () => new Binding(op, null));
      Null("arguments", () => binding.SetTensors(null));
      Null("arguments", () => op.Query(null));
      Null("arguments", () => op.InferOutput(null, 0));
      Null("arguments", () => op.Prepare(null));
      Null("arguments", () => plan.Execute(session, null));
      Null("session", () => plan.Execute(null, arguments));
      Null("stream", () => options.SetStream(null));
      Null("memory", () => options.SetWorkspace(null));
      Null("stream", () => session.ClearFaults(null));
      Null("data", () => memory.Write(null, stream));
      Null("data", () => memory.Read(null, stream));
      Null("stream", () => memory.Write(new float[1], null));
      Null("stream", () => memory.Read(new float[1], null));
      Null("data", () => Tensor.Of(null, 1));
      Null("data", () => Tensor.Of(ElementType.Float32, null, 1));
      Null("shape", () => Tensor.Of(new float[1], null));
      Null("shape", () => Tensor.At(ElementType.Float32, IntPtr.Zero, null));
      Null("shape", () => Tensor.OfSpan(Span<float>.Empty, null));
      Null("shape", () => Tensor.Described(ElementType.Float32, null));
      Null("shape", () => memory.Tensor(ElementType.Float32, null));
      Null("strides", () => Tensor.Of(new float[1], 1).WithStrides(null));
    }
  }

  public static void OddTensorsAreRefusedInWords() {
    using (var context = QuietContext())
    using (var arguments = new Arguments()) {
      var nine = Enumerable.Repeat(1L, 9).ToArray();
      Says(() => arguments.Input(3, Tensor.Of(new float[8], nine)), "input 3", "at most 8",
           "got 9");
      Says(() => arguments.Output(3, Tensor.Described(ElementType.Float32, nine)), "output 3", "9");
      Says(() => arguments.Input(3, Tensor.Of(new float[8], 2, 4).WithStrides(1)), "input 3",
           "strides [1]", "[2, 4]");
      Says(() => arguments.InPlace(3, 1, Tensor.Of(new float[16], 16), 2), "axis 2", "[16]");
      Says(() => arguments.InPlace(3, 1, Tensor.Of(new float[16], 4, 4), 2), "axis 2", "[4, 4]");
      Says(() => Tensor.Of(new decimal[8], 8), "Decimal");
      Says(() => Tensor.Of(ElementType.Float32, new object[8], 8), "Object");
      Says(() => Tensor.Of(ElementType.Float32, new DateTime[8], 8), "DateTime");
      Says(() => Tensor.Of(new float[8], long.MaxValue, 4), "[9223372036854775807, 4]");
      Says(() => Tensor.Of(new float[8], 1).AtByte(-4), "offset", "-4");
      Says(() => new DeviceMemory(context, -1), "bytes", "-1");
    }
  }
}
