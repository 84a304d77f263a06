/* Uses every function and every kind of struct of the header that it was compiled from, each struct
 * with guard bytes behind it, runs attention steps by a plan and by a binding, and prints the names
 * of the functions that it called. check_short_client.py builds it from two headers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_c.h"

#define GUARDED(type)         \
  struct {                    \
    type value;               \
    unsigned char guard[512]; \
  }

static int failures = 0;

/* Says that a function was called, and names it. */
static void note(const char* function) { printf("called %s\n", function); }
#define CALL(function, ...) (note(#function), function(__VA_ARGS__))

static void expect(int condition, const char* what) {
  if (condition) return;
  printf("failed: %s\n", what);
  ++failures;
}

static void expect_guard(const unsigned char* guard, const char* what) {
  for (int i = 0; i < 512; ++i) {
    if (guard[i] != 0xa5) {
      printf("written beyond %s, byte %d\n", what, i);
      ++failures;
      return;
    }
  }
}

/* Declares `name` with guard bytes, its size set and the rest dirty, as a careless client has it.
 */
#define OUT_STRUCT(type, name)      \
  GUARDED(type) name;               \
  memset(&name, 0xa5, sizeof name); \
  name.value.struct_size = (uint32_t)sizeof(type)

static attn_tensor tensor(uint8_t code, int32_t ndim, const int64_t* shape, void* data) {
  attn_tensor result = ATTN_TENSOR_INIT;
  int64_t stride = 1;
  result.device_type = ATTN_DEVICE_CPU;
  result.dtype.code = code;
  result.dtype.bits = 32;
  result.dtype.lanes = 1;
  result.ndim = ndim;
  result.data = data;
  for (int32_t axis = ndim - 1; axis >= 0; --axis) {
    result.shape[axis] = shape[axis];
    result.strides[axis] = stride;
    stride *= shape[axis];
  }
  return result;
}

static void introspect(void) {
  uint32_t count = 0;
  OUT_STRUCT(attn_device_info, device);
  OUT_STRUCT(attn_operator_info, info);
  OUT_STRUCT(attn_slot_info, slot);
  OUT_STRUCT(attn_attribute_info, attribute);
  expect(CALL(attn_device_get_info, 0, &device.value, NULL) == ATTN_OK, "device info");
  expect(device.value.available == 1, "the CPU is available");
  expect_guard(device.guard, "attn_device_info");
  expect(strlen(attn_version()) >= 5, "a version");
  note("attn_version");
  expect(attn_abi_version() >> 16 == ATTN_ABI_VERSION >> 16, "the same major version");
  note("attn_abi_version");
  expect(CALL(attn_device_count, &count, NULL) == ATTN_OK && count > 0, "devices");
  expect(CALL(attn_operator_count, &count, NULL) == ATTN_OK && count > 0, "operators");
  expect(CALL(attn_operator_get_info, 0, &info.value, NULL) == ATTN_OK, "operator info");
  expect_guard(info.guard, "attn_operator_info");
  expect(CALL(attn_operator_get_input, 0, 0, &slot.value, NULL) == ATTN_OK, "slot info");
  expect_guard(slot.guard, "attn_slot_info");
  expect(CALL(attn_operator_get_output, 0, 0, &slot.value, NULL) == ATTN_OK, "output info");
  expect_guard(slot.guard, "attn_slot_info");
  expect(CALL(attn_operator_get_attribute, 0, 0, &attribute.value, NULL) == ATTN_OK,
         "attribute info");
  expect_guard(attribute.guard, "attn_attribute_info");
}

static void fail_once(void) {
  OUT_STRUCT(attn_error, error);
  expect(CALL(attn_operator_count, NULL, &error.value) == ATTN_INVALID_ARGUMENT, "null count");
  expect(error.value.status == ATTN_INVALID_ARGUMENT, "status of the error");
  expect(strncmp(error.value.message, "count is null", 13) == 0, "message");
  expect(memchr(error.value.message, 0, sizeof error.value.message) != NULL, "terminated");
  expect_guard(error.guard, "attn_error");
}

/* The same step by a binding: all tensors at once, then one by one. */
static void bind(attn_op* op, attn_session* session, const attn_arg* inputs,
                 const attn_arg* outputs) {
  attn_binding* binding = NULL;
  attn_prepare_desc prepare = ATTN_PREPARE_DESC_INIT;
  attn_execute_desc execute = ATTN_EXECUTE_DESC_INIT;
  char words[512];
  size_t needed = 0;
  expect(CALL(attn_binding_create, op, session, &binding, NULL) == ATTN_OK, "binding");
  expect(CALL(attn_binding_set_tensors, binding, inputs, 7, outputs, 3, NULL) == ATTN_OK,
         "all tensors");
  expect(CALL(attn_binding_set_input, binding, 0, inputs[0].tensor, NULL) == ATTN_OK, "an input");
  expect(CALL(attn_binding_set_output, binding, 0, outputs[0].tensor, NULL) == ATTN_OK,
         "an output");
  expect(CALL(attn_binding_prepare, binding, &prepare, NULL) == ATTN_OK, "plan of the binding");
  memset(outputs[0].tensor->data, 0, 8 * sizeof(float));
  expect(CALL(attn_binding_execute, binding, &execute, NULL) == ATTN_OK, "execute the binding");
  OUT_STRUCT(attn_plan_info, info);
  expect(CALL(attn_binding_capture_support, binding, &info.value, NULL) == ATTN_OK,
         "facts of the binding");
  expect_guard(info.guard, "attn_plan_info");
  expect(CALL(attn_binding_describe, binding, words, sizeof words, &needed, NULL) == ATTN_OK &&
             needed > 1,
         "words of the binding");
  expect(CALL(attn_fault_text, ATTN_FAULT_POSITION, words, sizeof words, NULL, NULL) == ATTN_OK,
         "words of a fault");
  expect(CALL(attn_session_clear_faults, session, NULL, NULL) == ATTN_OK, "clear the faults");
  CALL(attn_binding_release, binding);
}

static void run(attn_context* context) {
  enum { kHeadSize = 8, kCapacity = 4 };
  float q[kHeadSize], k[kHeadSize], v[kHeadSize], y[kHeadSize];
  float keys[kCapacity * kHeadSize] = {0}, values[kCapacity * kHeadSize] = {0};
  int32_t seqlens = 0, total = 1;
  const int64_t rows[] = {1, 1, kHeadSize};
  const int64_t cache[] = {1, 1, kCapacity, kHeadSize};
  const int64_t one[] = {1};
  for (int i = 0; i < kHeadSize; ++i) {
    q[i] = k[i] = 0.5f;
    v[i] = (float)i + 1;
    y[i] = -1;
  }
  const attn_tensor t_q = tensor(ATTN_DTYPE_FLOAT, 3, rows, q);
  const attn_tensor t_k = tensor(ATTN_DTYPE_FLOAT, 3, rows, k);
  const attn_tensor t_v = tensor(ATTN_DTYPE_FLOAT, 3, rows, v);
  const attn_tensor t_keys = tensor(ATTN_DTYPE_FLOAT, 4, cache, keys);
  const attn_tensor t_values = tensor(ATTN_DTYPE_FLOAT, 4, cache, values);
  const attn_tensor t_seqlens = tensor(ATTN_DTYPE_INT, 1, one, &seqlens);
  const attn_tensor t_total = tensor(ATTN_DTYPE_INT, 0, one, &total);
  const attn_tensor t_y = tensor(ATTN_DTYPE_FLOAT, 3, rows, y);
  const attn_arg inputs[] = {{0, 0, &t_q},    {1, 0, &t_k},      {2, 0, &t_v},
                             {3, 0, &t_keys}, {4, 0, &t_values}, {5, 0, &t_seqlens},
                             {6, 0, &t_total}};
  const attn_arg outputs[] = {{0, 0, &t_y}, {1, 0, &t_keys}, {2, 0, &t_values}};

  attn_attribute attributes[2];
  memset(attributes, 0, sizeof attributes);
  attributes[0].name = "num_heads";
  attributes[1].name = "kv_num_heads";
  attributes[0].type = attributes[1].type = ATTN_ATTRIBUTE_INT;
  attributes[0].i = attributes[1].i = 1;
  attn_op_desc op_desc = ATTN_OP_DESC_INIT;
  op_desc.domain = "com.microsoft";
  op_desc.type = "GroupQueryAttention";
  op_desc.version = 1;
  op_desc.attributes = attributes;
  op_desc.attribute_count = 2;
  attn_op* op = NULL;
  expect(CALL(attn_op_create, context, &op_desc, &op, NULL) == ATTN_OK, "op");

  attn_session_desc session_desc = ATTN_SESSION_DESC_INIT;
  attn_session* session = NULL;
  expect(CALL(attn_session_create, context, &session_desc, &session, NULL) == ATTN_OK, "session");

  attn_query_desc query = ATTN_QUERY_DESC_INIT;
  query.inputs = inputs;
  query.input_count = 7;
  query.outputs = outputs;
  query.output_count = 3;
  OUT_STRUCT(attn_support, support);
  expect(CALL(attn_op_query, op, &query, &support.value, NULL) == ATTN_OK, "query");
  expect(support.value.supported == 1, "supported");
  expect_guard(support.guard, "attn_support");

  OUT_STRUCT(attn_tensor, inferred);
  expect(CALL(attn_op_infer_output, op, inputs, 7, 0, &inferred.value, NULL, NULL) == ATTN_OK,
         "infer");
  expect(inferred.value.ndim == 3 && inferred.value.shape[2] == kHeadSize, "inferred shape");
  expect_guard(inferred.guard, "attn_tensor");

  attn_prepare_desc prepare = ATTN_PREPARE_DESC_INIT;
  prepare.inputs = inputs;
  prepare.input_count = 7;
  prepare.outputs = outputs;
  prepare.output_count = 3;
  attn_plan* plan = NULL;
  expect(CALL(attn_op_prepare, op, &prepare, &plan, NULL) == ATTN_OK, "prepare");
  OUT_STRUCT(attn_plan_info, info);
  expect(CALL(attn_plan_get_info, plan, &info.value, NULL) == ATTN_OK, "plan info");
  expect(info.value.max_total_length == kCapacity, "range");
  expect_guard(info.guard, "attn_plan_info");

  attn_execute_desc execute = ATTN_EXECUTE_DESC_INIT;
  expect(CALL(attn_plan_execute, plan, session, inputs, 7, outputs, 3, &execute, NULL) == ATTN_OK,
         "execute");
  for (int i = 0; i < kHeadSize; ++i) expect(fabsf(y[i] - v[i]) == 0, "value of the output");

  OUT_STRUCT(attn_fault_info, faults);
  expect(CALL(attn_session_poll_faults, session, &faults.value, NULL) == ATTN_OK, "faults");
  expect(faults.value.bits == 0, "no faults");
  expect_guard(faults.guard, "attn_fault_info");

  OUT_STRUCT(attn_context_stats, stats);
  expect(CALL(attn_context_get_stats, context, &stats.value, NULL) == ATTN_OK, "stats");
  expect(stats.value.executions == 1 && stats.value.plans_created == 1, "counters");
  expect_guard(stats.guard, "attn_context_stats");

  char words[512];
  size_t needed = 0;
  expect(
      CALL(attn_plan_describe, plan, words, sizeof words, &needed, NULL) == ATTN_OK && needed > 1,
      "words of the plan");
  CALL(attn_plan_release, plan);
  bind(op, session, inputs, outputs);
  for (int i = 0; i < kHeadSize; ++i) expect(fabsf(y[i] - v[i]) == 0, "output of the binding");
  CALL(attn_session_release, session);
  CALL(attn_op_release, op);
}

int main(void) {
  const attn_api* api = NULL;
  attn_error error = ATTN_ERROR_INIT;
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  attn_context* context = NULL;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  if (CALL(attn_get_api, ATTN_ABI_VERSION, &api, &error) != ATTN_OK || api == NULL) {
    printf("failed: no table: %s\n", error.message);
    return 2;
  }
  expect(api->struct_size >= sizeof(attn_api), "the table is at least the client's");
  expect(api->context_create(&desc, &context, NULL) == ATTN_OK, "context of the table");
  api->context_release(context);
  context = NULL;
  if (CALL(attn_context_create, &desc, &context, &error) != ATTN_OK) {
    printf("failed: no context: %s\n", error.message);
    return 2;
  }
  OUT_STRUCT(attn_context_info, info);
  expect(CALL(attn_context_get_info, context, &info.value, NULL) == ATTN_OK, "context info");
  expect_guard(info.guard, "attn_context_info");
  introspect();
  fail_once();
  run(context);
  expect(CALL(attn_context_trim, context, NULL) == ATTN_OK, "trim");
  CALL(attn_context_release, context);
  return failures == 0 ? 0 : 1;
}
