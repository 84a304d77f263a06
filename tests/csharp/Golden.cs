using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using AttnC;

/// <summary>Runs the golden cases: Golden.exe FOLDER. One line a case: "ok NAME DIGEST" or
/// "FAILED NAME what is wrong".</summary>
static class Golden {
  private static Attributes AttributesOf(GoldenCase golden) {
    var attributes = new Attributes();
    foreach (var one in golden.Items("attributes")) {
      string name = (string)one["name"], kind = (string)one["kind"];
      if (kind == "int") attributes.Set(name, (long)(double)one["value"]);
      if (kind == "float") attributes.Set(name, (double)one["value"]);
      if (kind == "string") attributes.Set(name, (string)one["value"]);
    }
    return attributes;
  }

  private static void Execute(Context context, GoldenCase golden) {
    var named = golden.Object("operator");
    var range = golden.Object("range");
    var options = new PrepareOptions {
      Engine = (string)golden.Json["engine"],
      MaxBatch = (long)(double)range["max_batch"],
      MaxQueryLength = (long)(double)range["max_query_length"],
      MaxTotalLength = (long)(double)range["max_total_length"]
    };
    using (var attributes = AttributesOf(golden))
    using (var op = new Op(context, (string)named["domain"], (string)named["type"],
                           (int)(double)named["version"], attributes, (string)named["label"]))
    using (var session = new Session(context))
    using (var arguments = new Arguments()) {
      foreach (var one in golden.Inputs) arguments.Input(one.Slot, golden.TensorOf(one));
      foreach (var one in golden.Outputs) arguments.Output(one.Slot, golden.TensorOf(one));
      if ((string)golden.Json["call"] == "plan") {
        using (var plan = op.Prepare(arguments, options)) plan.Execute(session, arguments);
        return;
      }
      using (var binding = new Binding(op, session)) {
        binding.SetTensors(arguments);
        binding.Prepare(options);
        binding.Execute();
      }
    }
  }

  private static bool Run(Context context, string path) {
    string name = Path.GetFileNameWithoutExtension(path);
    using (var golden = new GoldenCase(path)) {
      int status = 0;
      string message = "";
      try {
        Execute(context, golden);
      } catch (AttnException error) {
        status = (int)error.Status;
        message = error.Message;
      }
      string wrong = golden.Check(status, message);
      Console.WriteLine(wrong == null ? "ok " + name + " " + golden.Digest(message).ToString("x16")
                                      : "FAILED " + name + " " + wrong);
      return wrong == null;
    }
  }

  static int Main(string[] words) {
    if (words.Length != 1) {
      Console.WriteLine("usage: Golden.exe FOLDER");
      return 2;
    }
    var paths = Directory.GetFiles(words[0], "*.json")
        .OrderBy(path => path, StringComparer.Ordinal);
    using (var context = new Context(new ContextOptions { IgnoreEnvironment = true })) {
      bool good = paths.Any();
      foreach (string path in paths) good &= Run(context, path);
      return good ? 0 : 1;
    }
  }
}
