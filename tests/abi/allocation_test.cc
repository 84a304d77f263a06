// A prepared execute allocates nothing: malloc and its family are counted while it runs.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "attn_c.h"
#include "support/count_allocations.h"

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  std::printf("failed: %s\n", what);
  ++failures;
}

struct Buffer {
  attn_tensor tensor;
  std::vector<float> floats;
};

Buffer floats(std::vector<int64_t> shape) {
  Buffer buffer;
  buffer.tensor = ATTN_TENSOR_INIT;
  buffer.tensor.device_type = ATTN_DEVICE_CPU;
  buffer.tensor.dtype = {ATTN_DTYPE_FLOAT, 32, 1};
  buffer.tensor.ndim = static_cast<int32_t>(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    buffer.tensor.shape[axis] = shape[axis];
    buffer.tensor.strides[axis] = stride;
    stride *= shape[axis];
  }
  buffer.floats.assign(static_cast<size_t>(stride), 0.5f);
  buffer.tensor.data = buffer.floats.data();
  return buffer;
}

attn_tensor integers(int32_t ndim, int64_t size, int32_t* data) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  tensor.device_type = ATTN_DEVICE_CPU;
  tensor.dtype = {ATTN_DTYPE_INT, 32, 1};
  tensor.ndim = ndim;
  tensor.shape[0] = size;
  tensor.strides[0] = 1;
  tensor.data = data;
  return tensor;
}

// Runs a decode step of these sizes by plan and by binding; how often it allocated.
long run(attn_context* context, int64_t batch, int64_t heads, int64_t head_size, int64_t keys) {
  attn_attribute attributes[2] = {};
  attributes[0].name = "num_heads";
  attributes[1].name = "kv_num_heads";
  attributes[0].type = attributes[1].type = ATTN_ATTRIBUTE_INT;
  attributes[0].i = attributes[1].i = heads;
  attn_op_desc desc = ATTN_OP_DESC_INIT;
  desc.domain = "com.microsoft";
  desc.type = "GroupQueryAttention";
  desc.label = "a label that is too long for the small buffer of a string";
  desc.version = 1;
  desc.attributes = attributes;
  desc.attribute_count = 2;
  attn_op* op = nullptr;
  attn_session* session = nullptr;
  expect(attn_op_create(context, &desc, &op, nullptr) == ATTN_OK, "op");
  expect(attn_session_create(context, nullptr, &session, nullptr) == ATTN_OK, "session");

  Buffer q = floats({batch, 1, heads * head_size}), k = q, v = q, y = q;
  Buffer key_cache = floats({batch, heads, keys, head_size}), value_cache = key_cache;
  for (Buffer* copied : {&k, &v, &y, &value_cache}) copied->tensor.data = copied->floats.data();
  std::vector<int32_t> seqlens(static_cast<size_t>(batch), static_cast<int32_t>(keys - 1));
  int32_t total = static_cast<int32_t>(keys);
  const attn_tensor t_seqlens = integers(1, batch, seqlens.data());
  const attn_tensor t_total = integers(0, 1, &total);
  const attn_arg inputs[] = {
      {0, 0, &q.tensor},           {1, 0, &k.tensor},  {2, 0, &v.tensor}, {3, 0, &key_cache.tensor},
      {4, 0, &value_cache.tensor}, {5, 0, &t_seqlens}, {6, 0, &t_total}};
  const attn_arg outputs[] = {
      {0, 0, &y.tensor}, {1, 0, &key_cache.tensor}, {2, 0, &value_cache.tensor}};

  attn_prepare_desc prepare = ATTN_PREPARE_DESC_INIT;
  prepare.inputs = inputs;
  prepare.input_count = 7;
  prepare.outputs = outputs;
  prepare.output_count = 3;
  attn_plan* plan = nullptr;
  attn_binding* binding = nullptr;
  expect(attn_op_prepare(op, &prepare, &plan, nullptr) == ATTN_OK, "prepare");
  expect(attn_binding_create(op, session, &binding, nullptr) == ATTN_OK, "binding");
  expect(attn_binding_set_tensors(binding, inputs, 7, outputs, 3, nullptr) == ATTN_OK, "set");
  expect(attn_binding_prepare(binding, nullptr, nullptr) == ATTN_OK, "binding prepare");

  attn_error error = ATTN_ERROR_INIT;
  const auto execute = [&] {
    expect(attn_plan_execute(plan, session, inputs, 7, outputs, 3, nullptr, &error) == ATTN_OK,
           error.message);
    expect(attn_binding_execute(binding, nullptr, &error) == ATTN_OK, error.message);
  };
  execute();  // scratch and threads are there from here on
  attn::test::begin_counting_allocations();
  for (int i = 0; i < 200; ++i) execute();
  const long allocations = attn::test::end_counting_allocations();
  attn_binding_release(binding);
  attn_plan_release(plan);
  attn_session_release(session);
  attn_op_release(op);
  return allocations;
}

// Every function of the family is counted, so that none of them hides an allocation.
void check_counter() {
  void* memory = nullptr;
  const auto counts = [&](const char* what, auto&& allocate) {
    attn::test::begin_counting_allocations();
    allocate();
    expect(attn::test::end_counting_allocations() == 1, what);
    std::free(memory);
  };
  counts("malloc is counted", [&] { memory = std::malloc(100); });
  counts("calloc is counted", [&] { memory = std::calloc(10, 10); });
  counts("realloc is counted", [&] { memory = std::realloc(nullptr, 100); });
  counts("memalign is counted", [&] { memory = memalign(64, 128); });
  counts("aligned_alloc is counted", [&] { memory = std::aligned_alloc(64, 128); });
  counts("posix_memalign is counted", [&] { (void)!posix_memalign(&memory, 64, 128); });
}

}  // namespace

int main() {
  check_counter();
  long allocations = 0;
  for (const int32_t threads : {1, 2}) {
    attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
    desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
    desc.thread_count = threads;
    attn_context* context = nullptr;
    expect(attn_context_create(&desc, &context, nullptr) == ATTN_OK, "context");
    allocations += run(context, 1, 1, 64, 1);
    allocations += run(context, 4, 8, 64, 512);
    attn_context_release(context);
  }
  std::printf("%ld allocations in 1600 prepared executions\n", allocations);
  expect(allocations == 0, "a prepared execute allocates");
  return failures == 0 ? 0 : 1;
}
