using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

/// <summary>A JSON text as dictionaries, lists, strings, doubles, booleans and null: what both
/// runtimes lack in common.</summary>
static class Json {
  public static object Parse(string text) {
    int at = 0;
    object value = Value(text, ref at);
    Skip(text, ref at);
    if (at != text.Length) throw new FormatException("text after the end at " + at);
    return value;
  }

  private static void Skip(string text, ref int at) {
    while (at < text.Length && char.IsWhiteSpace(text[at])) ++at;
  }

  private static char Next(string text, ref int at) {
    Skip(text, ref at);
    if (at == text.Length) throw new FormatException("the text ends early");
    return text[at];
  }

  private static object Value(string text, ref int at) {
    switch (Next(text, ref at)) {
      case '{':
        return Object(text, ref at);
      case '[':
        return List(text, ref at);
      case '"':
        return String(text, ref at);
    }
    int begin = at;
    while (at < text.Length && ",]} \r\n\t".IndexOf(text[at]) < 0) ++at;
    string word = text.Substring(begin, at - begin);
    if (word == "null") return null;
    if (word == "true" || word == "false") return word == "true";
    return double.Parse(word, CultureInfo.InvariantCulture);
  }

  private static Dictionary<string, object> Object(string text, ref int at) {
    var found = new Dictionary<string, object>();
    for (++at; Next(text, ref at) != '}';) {
      if (text[at] == ',') ++at;
      Skip(text, ref at);
      string name = String(text, ref at);
      if (Next(text, ref at) != ':') throw new FormatException("no colon at " + at);
      ++at;
      found[name] = Value(text, ref at);
    }
    ++at;
    return found;
  }

  private static List<object> List(string text, ref int at) {
    var found = new List<object>();
    for (++at; Next(text, ref at) != ']';) {
      if (text[at] == ',') ++at;
      found.Add(Value(text, ref at));
    }
    ++at;
    return found;
  }

  private static string String(string text, ref int at) {
    if (text[at] != '"') throw new FormatException("no text at " + at);
    var result = new StringBuilder();
    for (++at; text[at] != '"'; ++at) {
      char c = text[at];
      if (c == '\\') {
        c = text[++at];
        if (c == 'u') {
          c = (char)int.Parse(text.Substring(at + 1, 4), NumberStyles.HexNumber);
          at += 4;
        } else {
          int escape = "nrtbf".IndexOf(c);
          if (escape >= 0) c = "\n\r\t\b\f"[escape];
        }
      }
      result.Append(c);
    }
    ++at;
    return result.ToString();
  }
}
