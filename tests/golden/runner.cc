// Runs the golden cases through attn_c.hpp: golden_cpp FOLDER.
//
// One line a case: "ok <name> <digest>" or "FAILED <name> <what is wrong>".
#include <attn_c.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "golden_file.h"

namespace {

struct Free {
  void operator()(golden_case* c) const { golden_free(c); }
};
using Case = std::unique_ptr<golden_case, Free>;

attn_c::Tensor tensor_of(const golden_argument& argument) {
  const attn_dtype type = {argument.code, argument.bits, 1};
  const std::vector<int64_t> shape(argument.shape, argument.shape + argument.ndim);
  const std::vector<int64_t> strides(argument.strides, argument.strides + argument.ndim);
  return attn_c::Tensor(type, shape, argument.block->data)
      .with_strides(strides)
      .at_byte(argument.byte_offset)
      .of_bytes(argument.block->bytes);
}

attn_c::Arguments arguments_of(const golden_argument* list, uint32_t count) {
  attn_c::Arguments arguments;
  for (uint32_t i = 0; i < count; ++i) arguments.add(list[i].slot, tensor_of(list[i]));
  return arguments;
}

attn_c::Attributes attributes_of(const golden_case& c) {
  attn_c::Attributes attributes;
  for (uint32_t i = 0; i < c.attribute_count; ++i) {
    const golden_attribute& from = c.attributes[i];
    const std::string kind = from.kind;
    if (kind == "int") {
      attributes.set(from.name, from.i);
    } else if (kind == "float") {
      attributes.set(from.name, from.f);
    } else {
      attributes.set(from.name, from.text);
    }
  }
  return attributes;
}

void execute(const attn_c::Context& context, const golden_case& c) {
  const attn_c::Op op(context, c.domain, c.type, c.version, attributes_of(c), c.label);
  const attn_c::Session session(context);
  const attn_c::Arguments inputs = arguments_of(c.inputs, c.input_count);
  const attn_c::Arguments outputs = arguments_of(c.outputs, c.output_count);
  attn_c::PrepareOptions options;
  if (c.engine != nullptr) options.engine = c.engine;
  options.max_batch = c.max_batch;
  options.max_query_length = c.max_query_length;
  options.max_total_length = c.max_total_length;
  if (c.by_plan) {
    op.prepare(inputs, outputs, options).execute(session, inputs, outputs);
    return;
  }
  const attn_c::Binding binding(op, session);
  binding.set_tensors(inputs, outputs);
  binding.prepare(options);
  binding.execute();
}

bool run_case(const attn_c::Context& context, const char* folder, const char* name) {
  const Case c(golden_read(folder, name));
  if (c == nullptr) return false;
  attn_status status = ATTN_OK;
  std::string message;
  try {
    execute(context, *c);
  } catch (const attn_c::Error& error) {
    status = error.status();
    message = error.what();
  }
  char report[1200];
  if (!golden_check(c.get(), status, message.c_str(), report, sizeof report)) {
    std::printf("FAILED %s %s\n", name, report);
    return false;
  }
  const uint64_t digest = golden_digest(c.get(), message.c_str());
  std::printf("ok %s %016llx\n", name, static_cast<unsigned long long>(digest));
  return true;
}

// Runs every case of a folder; whether all is right.
bool run_all(const char* folder) {
  attn_c::ContextOptions options;
  options.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  const attn_c::Context context(options);
  char** names = nullptr;
  const int count = golden_names(folder, &names);
  int failures = 0;
  for (int i = 0; i < count; ++i) {
    if (!run_case(context, folder, names[i])) ++failures;
    std::free(names[i]);
  }
  std::free(names);
  return count > 0 && failures == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::printf("usage: golden_cpp FOLDER\n");
    return 2;
  }
  try {
    return run_all(argv[1]) ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
