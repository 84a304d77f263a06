/* Finds the chosen engine in the library's JSON description of a plan. */
#include "describe.h"

#include <stdio.h>
#include <string.h>

/* A part of the text. This is no JSON parser: it relies on `name: value` pairs and on how brackets
 * nest, and steps over strings so that what stands inside them is never taken for either. */
typedef struct Span {
  const char* begin;
  const char* end;
} Span;

/* Past the string that begins at `at` (a quote). */
static const char* after_string(const char* at, const char* end) {
  for (++at; at < end && *at != '"'; ++at) {
    if (*at == '\\') ++at;
  }
  return at < end ? at + 1 : end;
}

/* The object or list that begins at the first bracket in the span; empty where there is none. */
static Span first_block(Span text) {
  int depth = 0;
  Span block = {text.end, text.end};
  for (const char* at = text.begin; at < text.end;) {
    if (*at == '"') {
      at = after_string(at, text.end);
      continue;
    }
    if ((*at == '{' || *at == '[') && depth++ == 0) block.begin = at;
    if ((*at == '}' || *at == ']') && --depth == 0) {
      block.end = at + 1;
      break;
    }
    ++at;
  }
  return block;
}

/* What follows `"name":` in an object, members of nested ones left out; empty where there is no
 * such member. */
static Span member(Span object, const char* name) {
  const size_t length = strlen(name);
  int depth = 0;
  for (const char* at = object.begin; at < object.end;) {
    if (*at == '"') {
      const char* close = after_string(at, object.end);
      const char* next = close + strspn(close, " \n");
      if (depth == 1 && *next == ':' && (size_t)(close - at) == length + 2 &&
          strncmp(at + 1, name, length) == 0) {
        const Span value = {next + 1, object.end};
        return value;
      }
      at = close;
      continue;
    }
    depth += *at == '{' || *at == '[';
    depth -= *at == '}' || *at == ']';
    ++at;
  }
  const Span none = {object.end, object.end};
  return none;
}

/* The string that an object has as `name`, without its escapes; "" where there is none. */
static void copy_string(Span object, const char* name, char* target, size_t capacity) {
  const Span value = member(object, name);
  const char* at = value.begin;
  size_t used = 0;
  while (at < value.end && (*at == ' ' || *at == '\n')) ++at;
  if (at < value.end && *at == '"') {
    const char* close = after_string(at, value.end) - 1;
    for (++at; at < close && used + 1 < capacity; ++at) {
      if (*at == '\\') ++at;
      target[used++] = *at;
    }
  }
  target[used] = '\0';
}

static void append(char* text, size_t capacity, const char* more) {
  const size_t used = strlen(text);
  snprintf(text + used, capacity - used, "%s", more);
}

/* One considered engine: its reason goes to the front when it is the chosen one. */
static void explain_engine(Span verdict, const char* chosen, char* why, size_t capacity) {
  char name[64];
  char reason[512];
  char text[640];
  copy_string(verdict, "engine", name, sizeof name);
  copy_string(verdict, "reason", reason, sizeof reason);
  if (strcmp(name, chosen) == 0) {
    char rest[1024];
    snprintf(rest, sizeof rest, "%s", why);
    snprintf(why, capacity, "%s", reason);
    append(why, capacity, rest);
  } else {
    snprintf(text, sizeof text, "\n  %s: %s", name, reason);
    append(why, capacity, text);
  }
}

void describe_choice(const char* json, const char* stage, char* engine, size_t engine_capacity,
                     char* why, size_t why_capacity) {
  snprintf(engine, engine_capacity, "?");
  snprintf(why, why_capacity, "the description has no stage %s", stage);
  const Span text = {json, json + strlen(json)};
  Span rest = first_block(member(text, "stages"));
  if (rest.begin == rest.end) return;
  ++rest.begin; /* into the list */
  for (Span item = first_block(rest); item.begin < item.end; item = first_block(rest)) {
    rest.begin = item.end;
    char name[64];
    copy_string(item, "stage", name, sizeof name);
    if (strcmp(name, stage) != 0) continue;
    copy_string(item, "engine", engine, engine_capacity);
    why[0] = '\0';
    Span verdicts = first_block(member(item, "considered"));
    if (verdicts.begin == verdicts.end) return;
    ++verdicts.begin;
    for (Span one = first_block(verdicts); one.begin < one.end; one = first_block(verdicts)) {
      verdicts.begin = one.end;
      explain_engine(one, engine, why, why_capacity);
    }
    return;
  }
}
