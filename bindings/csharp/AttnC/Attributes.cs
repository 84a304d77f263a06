using System;
using AttnC.Native;

namespace AttnC {

/// <summary>Attributes of an operator by name.</summary>
public sealed class Attributes : IDisposable {
  private readonly Owned<AttributeList> handle_ = new Owned<AttributeList>(new AttributeList());

  internal Owned<AttributeList> Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>An integer.</summary>
  public Attributes Set(string name, long value) {
    return Add(name, list => list.add_int(name, value));
  }

  /// <summary>A number; the standard has it as a float.</summary>
  public Attributes Set(string name, double value) {
    return Add(name, list => list.add_float(name, value));
  }

  /// <summary>A text.</summary>
  public Attributes Set(string name, string value) {
    Text.In(Need.Of(value, nameof(value)), "the value of attribute '" + name + "'");
    return Add(name, list => list.add_string(name, value));
  }

  /// <summary>A list of integers.</summary>
  public Attributes Set(string name, long[] values) {
    Need.Of(values, nameof(values));
    return Add(name, list => list.add_ints(name, values));
  }

  /// <summary>A list of numbers.</summary>
  public Attributes Set(string name, double[] values) {
    Need.Of(values, nameof(values));
    return Add(name, list => list.add_floats(name, values));
  }

  private Attributes Add(string name, Action<AttributeList> add) {
    Text.In(Need.Of(name, nameof(name)), "the attribute's name");
    using (new Held(Handle)) add(handle_.Value);
    return this;
  }

  /// <summary>Frees the list.</summary>
  public void Dispose() { handle_.Dispose(); }
}

}  // namespace AttnC
