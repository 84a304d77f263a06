/* A decode step that is captured once and replayed for every token, and a length that breaks a
 * rule.
 *
 *     capture          on the CPU, which captures nothing: the same steps are executed one by one
 *     capture cuda     on the first CUDA device
 *
 * One sequence, two query heads that share one key/value head of eight channels, a cache for 16
 * tokens that is updated in place. Queries and keys are zero, so that every key weighs the same,
 * and the value of token t is t + 1: each output is the mean of the values so far, 1, 1.5, 2, ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_c.h"
#include "attn_c_host.h"

#define TRY(call)                                      \
  do {                                                 \
    attn_error error = ATTN_ERROR_INIT;                \
    if ((call) != ATTN_OK) return fail(#call, &error); \
  } while (0)

static int fail(const char* call, const attn_error* error) {
  fprintf(stderr, "%s:\n  %s\n", call, error->message);
  return 1;
}

enum { kHeads = 2, kSize = 8, kCapacity = 16, kTokens = 4 };

/* What one step reads and writes. All but the bound lies in memory of the device. */
typedef struct Step {
  attn_context* context;
  attn_session* session;
  void* stream;
  int32_t device_type;
  attn_tensor query, key, value, key_cache, value_cache, lengths, bound, output;
} Step;

/* A row-major tensor in zeroed memory of the device. */
static int make_tensor(const Step* step, attn_tensor* tensor, uint8_t code, int32_t rank,
                       const int64_t* shape) {
  int64_t elements = 1;
  *tensor = (attn_tensor)ATTN_TENSOR_INIT;
  tensor->device_type = step->device_type;
  tensor->dtype = (attn_dtype){code, 32, 1};
  tensor->ndim = rank;
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    tensor->shape[axis] = shape[axis];
    tensor->strides[axis] = elements;
    elements *= shape[axis];
  }
  const uint64_t bytes = (uint64_t)elements * 4;
  TRY(attn_host_memory_alloc(step->context, ATTN_MEMORY_DEVICE, bytes, &tensor->data, &error));
  void* zeros = calloc(1, bytes);
  if (zeros == NULL) return 1;
  const attn_status copied =
      attn_host_memory_copy(step->context, tensor->data, zeros, bytes, NULL, NULL);
  free(zeros);
  return copied != ATTN_OK;
}

static int make_tensors(Step* step, int32_t* bound) {
  const int64_t query[] = {1, 1, kHeads * kSize}, row[] = {1, 1, kSize}, one[] = {1};
  const int64_t cache[] = {1, 1, kCapacity, kSize};
  if (make_tensor(step, &step->query, ATTN_DTYPE_FLOAT, 3, query) != 0 ||
      make_tensor(step, &step->output, ATTN_DTYPE_FLOAT, 3, query) != 0 ||
      make_tensor(step, &step->key, ATTN_DTYPE_FLOAT, 3, row) != 0 ||
      make_tensor(step, &step->value, ATTN_DTYPE_FLOAT, 3, row) != 0 ||
      make_tensor(step, &step->key_cache, ATTN_DTYPE_FLOAT, 4, cache) != 0 ||
      make_tensor(step, &step->value_cache, ATTN_DTYPE_FLOAT, 4, cache) != 0 ||
      make_tensor(step, &step->lengths, ATTN_DTYPE_INT, 1, one) != 0) {
    return 1;
  }
  /* An upper bound of the keys. It may lie on the host, and a capture fixes it: the capacity. */
  *bound = kCapacity;
  step->bound = step->lengths;
  step->bound.device_type = ATTN_DEVICE_CPU;
  step->bound.ndim = 0;
  step->bound.data = bound;
  return 0;
}

/* Token t and its length, at the addresses that the step reads. */
static int load_token(const Step* step, int32_t token) {
  float value[kSize];
  for (int i = 0; i < kSize; ++i) value[i] = (float)(token + 1);
  TRY(attn_host_memory_copy(step->context, step->value.data, value, sizeof value, step->stream,
                            &error));
  TRY(attn_host_memory_copy(step->context, step->lengths.data, &token, sizeof token, step->stream,
                            &error));
  return 0;
}

static int print_output(const Step* step, int32_t token) {
  float first = 0;
  TRY(attn_host_memory_copy(step->context, &first, step->output.data, sizeof first, step->stream,
                            &error));
  TRY(attn_host_stream_synchronize(step->context, step->stream, &error));
  printf("token %d: %g\n", (int)token, (double)first);
  return 0;
}

static int decode(Step* step, attn_op* op) {
  const attn_arg inputs[] = {{0, 0, &step->query},       {1, 0, &step->key},
                             {2, 0, &step->value},       {3, 0, &step->key_cache},
                             {4, 0, &step->value_cache}, {5, 0, &step->lengths},
                             {6, 0, &step->bound}};
  const attn_arg outputs[] = {
      {0, 0, &step->output}, {1, 0, &step->key_cache}, {2, 0, &step->value_cache}};

  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.inputs = inputs;
  desc.input_count = 7;
  desc.outputs = outputs;
  desc.output_count = 3;
  attn_plan* plan = NULL;
  TRY(attn_op_prepare(op, &desc, &plan, &error));

  /* The first token as it comes: afterwards the session has the scratch that a capture may use. */
  attn_execute_desc how = ATTN_EXECUTE_DESC_INIT;
  how.stream = step->stream;
  if (load_token(step, 0) != 0) return 1;
  TRY(attn_plan_execute(plan, step->session, inputs, 7, outputs, 3, &how, &error));
  if (print_output(step, 0) != 0) return 1;

  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  TRY(attn_plan_get_info(plan, &info, &error));
  const int can_capture = (info.capture_flags & ATTN_CAPTURE_SUPPORTED) != 0;
  attn_host_graph* graph = NULL;
  if (can_capture) {
    TRY(attn_host_graph_begin_capture(step->context, step->stream, &error));
    TRY(attn_plan_execute(plan, step->session, inputs, 7, outputs, 3, &how, &error));
    TRY(attn_host_graph_end_capture(step->context, step->stream, &graph, &error));
  }
  printf("captured: %s\n", can_capture ? "yes" : info.reason);

  /* Addresses stay, what lies there changes: the token, its length, the cache. */
  for (int32_t token = 1; token < kTokens; ++token) {
    if (load_token(step, token) != 0) return 1;
    if (graph != NULL) {
      TRY(attn_host_graph_launch(graph, step->stream, &error));
    } else {
      TRY(attn_plan_execute(plan, step->session, inputs, 7, outputs, 3, &how, &error));
    }
    if (print_output(step, token) != 0) return 1;
  }
  attn_host_graph_release(graph);

  /* One token more than the cache holds. On the host execute refuses it; on a device it is found by
   * the kernels, becomes a fault of the session, and leaves the cache as it was. */
  attn_error refusal = ATTN_ERROR_INIT;
  if (load_token(step, kCapacity) != 0) return 1;
  attn_status status =
      attn_plan_execute(plan, step->session, inputs, 7, outputs, 3, &how, &refusal);
  if (status == ATTN_OK) {
    TRY(attn_host_stream_synchronize(step->context, step->stream, &error));
    attn_fault_info fault = ATTN_FAULT_INFO_INIT;
    TRY(attn_session_poll_faults(step->session, &fault, &error));
    printf("fault: %s\n", fault.text);
    TRY(attn_session_clear_faults(step->session, step->stream, &error));
    status = fault.bits != 0 ? ATTN_INVALID_ARGUMENT : ATTN_OK;
  } else {
    printf("refused: %s\n", refusal.message);
  }
  attn_plan_release(plan);
  return status == ATTN_INVALID_ARGUMENT ? 0 : 1;
}

int main(int argc, char** argv) {
  const int on_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
  Step step;
  memset(&step, 0, sizeof step);
  step.device_type = on_cuda ? ATTN_DEVICE_CUDA : ATTN_DEVICE_CPU;
  attn_context_desc device = ATTN_CONTEXT_DESC_INIT;
  device.device_type = step.device_type;
  TRY(attn_context_create(&device, &step.context, &error));
  TRY(attn_session_create(step.context, NULL, &step.session, &error));
  TRY(attn_host_stream_create(step.context, &step.stream, &error));

  const attn_attribute heads[] = {{.name = "num_heads", .type = ATTN_ATTRIBUTE_INT, .i = kHeads},
                                  {.name = "kv_num_heads", .type = ATTN_ATTRIBUTE_INT, .i = 1}};
  attn_op_desc node = ATTN_OP_DESC_INIT;
  node.domain = "com.microsoft";
  node.type = "GroupQueryAttention";
  node.version = 1;
  node.label = "layer 0";
  node.attributes = heads;
  node.attribute_count = 2;
  attn_op* op = NULL;
  TRY(attn_op_create(step.context, &node, &op, &error));

  int32_t bound = 0;
  const int result = make_tensors(&step, &bound) != 0 || decode(&step, op) != 0;

  attn_tensor* const tensors[] = {&step.query,     &step.key,         &step.value,  &step.output,
                                  &step.key_cache, &step.value_cache, &step.lengths};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
    attn_host_memory_free(step.context, ATTN_MEMORY_DEVICE, tensors[i]->data, NULL);
  }
  attn_host_stream_release(step.context, step.stream, NULL);
  attn_op_release(op);
  attn_session_release(step.session);
  attn_context_release(step.context);
  return result;
}
