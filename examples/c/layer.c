/* One recorded attention layer on a device: its operator and its calls. */
#include "layer.h"

#include <stdio.h>
#include <string.h>

/* Slots of com.microsoft::GroupQueryAttention. */
enum {
  kSlotQuery,
  kSlotKey,
  kSlotValue,
  kSlotPastKey,
  kSlotPastValue,
  kSlotSeqlensK,
  kSlotTotalSequenceLength,
  kSlotCosCache,
  kSlotSinCache
};
enum { kSlotOutput, kSlotPresentKey, kSlotPresentValue };

/* A row-major tensor; sizes of 0 end the shape. */
static attn_tensor describe(const Layer* self, void* data, attn_dtype dtype, int64_t a, int64_t b,
                            int64_t c, int64_t d) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  const int64_t shape[4] = {a, b, c, d};
  tensor.device_type = self->device_type;
  tensor.device_id = self->device_id;
  tensor.dtype = dtype;
  tensor.data = data;
  while (tensor.ndim < 4 && shape[tensor.ndim] > 0) {
    tensor.shape[tensor.ndim] = shape[tensor.ndim];
    ++tensor.ndim;
  }
  int64_t stride = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

static void add(CallArgs* call, int output, uint32_t slot, attn_tensor tensor) {
  attn_tensor* kept = &call->tensors[call->input_count + call->output_count];
  attn_arg* arg =
      output ? &call->outputs[call->output_count++] : &call->inputs[call->input_count++];
  *kept = tensor;
  arg->slot = slot;
  arg->reserved = 0;
  arg->tensor = kept;
}

/* `first` is kQuery or kStepQuery: key, value and output follow it in the list of buffers. */
static void describe_call(Layer* self, CallArgs* call, int first, int64_t rows) {
  const attn_dtype type = self->type->dtype;
  const attn_dtype int32 = {ATTN_DTYPE_INT, 32, 1};
  const attn_dtype float32 = {ATTN_DTYPE_FLOAT, 32, 1};
  const int64_t width = self->heads * self->head_size;
  const int64_t kv_width = self->kv_heads * self->head_size;
  void* query = self->buffers[first].data;
  void* key = self->buffers[first + 1].data;
  void* value = self->buffers[first + 2].data;
  void* output = self->buffers[first + 3].data;
  const attn_tensor keys = describe(self, self->buffers[kKeyCache].data, type, 1, self->kv_heads,
                                    self->capacity, self->head_size);
  const attn_tensor values = describe(self, self->buffers[kValueCache].data, type, 1,
                                      self->kv_heads, self->capacity, self->head_size);
  const int64_t half = self->head_size / 2;
  attn_tensor bound = describe(self, &self->bound, int32, 1, 0, 0, 0);
  bound.device_type = ATTN_DEVICE_CPU; /* the one input that may lie on the host and be captured */
  bound.device_id = 0;

  add(call, 0, kSlotQuery, describe(self, query, type, 1, rows, width, 0));
  add(call, 0, kSlotKey, describe(self, key, type, 1, rows, kv_width, 0));
  add(call, 0, kSlotValue, describe(self, value, type, 1, rows, kv_width, 0));
  add(call, 0, kSlotPastKey, keys);
  add(call, 0, kSlotPastValue, values);
  add(call, 0, kSlotSeqlensK, describe(self, self->buffers[kLength].data, int32, 1, 0, 0, 0));
  add(call, 0, kSlotTotalSequenceLength, bound);
  add(call, 0, kSlotCosCache,
      describe(self, self->buffers[kCos].data, float32, self->capacity, half, 0, 0));
  add(call, 0, kSlotSinCache,
      describe(self, self->buffers[kSin].data, float32, self->capacity, half, 0, 0));
  add(call, 1, kSlotOutput, describe(self, output, type, 1, rows, width, 0));
  add(call, 1, kSlotPresentKey, keys); /* the past's memory: rows are appended in place */
  add(call, 1, kSlotPresentValue, values);
}

int layer_query(const Layer* self, attn_support* support) {
  /* The same tensors without memory, and the aliases said in words. */
  CallArgs shapes;
  memset(&shapes, 0, sizeof shapes);
  for (uint32_t i = 0; i < self->step.input_count + self->step.output_count; ++i) {
    const int output = i >= self->step.input_count;
    const attn_arg* arg =
        output ? &self->step.outputs[i - self->step.input_count] : &self->step.inputs[i];
    attn_tensor tensor = *arg->tensor;
    tensor.data = NULL;
    add(&shapes, output, arg->slot, tensor);
  }
  const attn_alias aliases[] = {{kSlotPastKey, kSlotPresentKey},
                                {kSlotPastValue, kSlotPresentValue}};
  attn_query_desc desc = ATTN_QUERY_DESC_INIT;
  desc.inputs = shapes.inputs;
  desc.input_count = shapes.input_count;
  desc.outputs = shapes.outputs;
  desc.output_count = shapes.output_count;
  desc.aliases = aliases;
  desc.alias_count = sizeof aliases / sizeof aliases[0];
  TRY("query the node", self->plugin->api->op_query(self->op, &desc, support, &error));
  return 0;
}

static int create_op(Layer* self) {
  attn_attribute attributes[RECORDING_MAX_ATTRIBUTES];
  memset(attributes, 0, sizeof attributes);
  for (int32_t i = 0; i < self->recorded->attribute_count; ++i) {
    attributes[i].name = self->recorded->attributes[i].name;
    attributes[i].type = ATTN_ATTRIBUTE_INT;
    attributes[i].i = self->recorded->attributes[i].value;
  }
  char label[64];
  snprintf(label, sizeof label, "layer %lld", (long long)self->recorded->number);
  attn_op_desc desc = ATTN_OP_DESC_INIT;
  desc.domain = "com.microsoft";
  desc.type = "GroupQueryAttention";
  desc.version = 1;
  desc.label = label;
  desc.attributes = attributes;
  desc.attribute_count = (uint32_t)self->recorded->attribute_count;
  TRY("create the operator", self->plugin->api->op_create(self->context, &desc, &self->op, &error));
  return 0;
}

int layer_open(Layer* self, const Plugin* library, attn_context* context,
               const RecordedLayer* recorded, const ElementType* type, int64_t prompt_rows) {
  memset(self, 0, sizeof *self);
  self->plugin = library;
  self->context = context;
  self->recorded = recorded;
  self->type = type;
  self->rows = recorded->query.shape[0];
  self->prompt_rows = prompt_rows;
  self->capacity = (self->rows + 63) / 64 * 64;
  self->bound = (int32_t)self->capacity;
  self->heads = recorded_attribute(recorded, "num_heads");
  self->kv_heads = recorded_attribute(recorded, "kv_num_heads");
  self->head_size = recorded->head_size;

  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  TRY("ask the context", library->api->context_get_info(context, &info, &error));
  self->device_type = info.device_type;
  self->device_id = info.device_id;
  TRY("create a session", library->api->session_create(context, NULL, &self->session, &error));
  TRY("create a stream", library->host->host_stream_create(context, &self->stream, &error));
  if (create_op(self) != 0 || layer_allocate(self) != 0 || layer_fill(self) != 0) return -1;
  describe_call(self, &self->prompt, kQuery, prompt_rows);
  describe_call(self, &self->step, kStepQuery, 1);
  return 0;
}

void layer_close(Layer* self) {
  if (self->plugin == NULL) return;
  for (int i = 0; i < kBufferCount; ++i) {
    self->plugin->host->host_memory_free(self->context, ATTN_MEMORY_DEVICE, self->buffers[i].data,
                                         NULL);
  }
  self->plugin->api->op_release(self->op);
  self->plugin->api->session_release(self->session);
  self->plugin->host->host_stream_release(self->context, self->stream, NULL);
  memset(self, 0, sizeof *self);
}
