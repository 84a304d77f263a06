/* Uses every kind of struct of the header that it was compiled from, each with guard bytes behind
 * it, and runs one attention step. check_short_client.py builds it from two headers. */
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
  expect(attn_device_get_info(0, &device.value, NULL) == ATTN_OK, "device info");
  expect(device.value.available == 1, "the CPU is available");
  expect_guard(device.guard, "attn_device_info");
  expect(attn_operator_count(&count, NULL) == ATTN_OK && count > 0, "operators");
  expect(attn_operator_get_info(0, &info.value, NULL) == ATTN_OK, "operator info");
  expect_guard(info.guard, "attn_operator_info");
  expect(attn_operator_get_input(0, 0, &slot.value, NULL) == ATTN_OK, "slot info");
  expect_guard(slot.guard, "attn_slot_info");
  expect(attn_operator_get_attribute(0, 0, &attribute.value, NULL) == ATTN_OK, "attribute info");
  expect_guard(attribute.guard, "attn_attribute_info");
}

static void fail_once(void) {
  OUT_STRUCT(attn_error, error);
  expect(attn_operator_count(NULL, &error.value) == ATTN_INVALID_ARGUMENT, "null count");
  expect(error.value.status == ATTN_INVALID_ARGUMENT, "status of the error");
  expect(strncmp(error.value.message, "count is null", 13) == 0, "message");
  expect(memchr(error.value.message, 0, sizeof error.value.message) != NULL, "terminated");
  expect_guard(error.guard, "attn_error");
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
  expect(attn_op_create(context, &op_desc, &op, NULL) == ATTN_OK, "op");

  attn_session_desc session_desc = ATTN_SESSION_DESC_INIT;
  attn_session* session = NULL;
  expect(attn_session_create(context, &session_desc, &session, NULL) == ATTN_OK, "session");

  attn_query_desc query = ATTN_QUERY_DESC_INIT;
  query.inputs = inputs;
  query.input_count = 7;
  query.outputs = outputs;
  query.output_count = 3;
  OUT_STRUCT(attn_support, support);
  expect(attn_op_query(op, &query, &support.value, NULL) == ATTN_OK, "query");
  expect(support.value.supported == 1, "supported");
  expect_guard(support.guard, "attn_support");

  OUT_STRUCT(attn_tensor, inferred);
  expect(attn_op_infer_output(op, inputs, 7, 0, &inferred.value, NULL, NULL) == ATTN_OK, "infer");
  expect(inferred.value.ndim == 3 && inferred.value.shape[2] == kHeadSize, "inferred shape");
  expect_guard(inferred.guard, "attn_tensor");

  attn_prepare_desc prepare = ATTN_PREPARE_DESC_INIT;
  prepare.inputs = inputs;
  prepare.input_count = 7;
  prepare.outputs = outputs;
  prepare.output_count = 3;
  attn_plan* plan = NULL;
  expect(attn_op_prepare(op, &prepare, &plan, NULL) == ATTN_OK, "prepare");
  OUT_STRUCT(attn_plan_info, info);
  expect(attn_plan_get_info(plan, &info.value, NULL) == ATTN_OK, "plan info");
  expect(info.value.max_total_length == kCapacity, "range");
  expect_guard(info.guard, "attn_plan_info");

  attn_execute_desc execute = ATTN_EXECUTE_DESC_INIT;
  expect(attn_plan_execute(plan, session, inputs, 7, outputs, 3, &execute, NULL) == ATTN_OK,
         "execute");
  for (int i = 0; i < kHeadSize; ++i) expect(fabsf(y[i] - v[i]) == 0, "value of the output");

  OUT_STRUCT(attn_fault_info, faults);
  expect(attn_session_poll_faults(session, &faults.value, NULL) == ATTN_OK, "faults");
  expect(faults.value.bits == 0, "no faults");
  expect_guard(faults.guard, "attn_fault_info");

  OUT_STRUCT(attn_context_stats, stats);
  expect(attn_context_get_stats(context, &stats.value, NULL) == ATTN_OK, "stats");
  expect(stats.value.executions == 1 && stats.value.plans_created == 1, "counters");
  expect_guard(stats.guard, "attn_context_stats");

  attn_plan_release(plan);
  attn_session_release(session);
  attn_op_release(op);
}

int main(void) {
  const attn_api* api = NULL;
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  attn_context* context = NULL;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  expect(attn_get_api(ATTN_ABI_VERSION, &api, NULL) == ATTN_OK, "table");
  expect(api->struct_size >= sizeof(attn_api), "the table is at least the client's");
  expect(api->context_create(&desc, &context, NULL) == ATTN_OK, "context");
  OUT_STRUCT(attn_context_info, info);
  expect(attn_context_get_info(context, &info.value, NULL) == ATTN_OK, "context info");
  expect_guard(info.guard, "attn_context_info");
  introspect();
  fail_once();
  run(context);
  attn_context_release(context);
  return failures == 0 ? 0 : 1;
}
