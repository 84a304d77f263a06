/* The device memory of a layer: filled from the recording, read back for comparison. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

static int out_of_memory(void) {
  fprintf(stderr, "out of memory\n");
  return -1;
}

static int copy(Layer* self, void* target, const void* source, uint64_t bytes) {
  TRY("copy memory", self->plugin->host->host_memory_copy(self->context, target, source, bytes,
                                                          self->stream, &error));
  return 0;
}

static int synchronize(Layer* self) {
  TRY("wait for the device",
      self->plugin->host->host_stream_synchronize(self->context, self->stream, &error));
  return 0;
}

int layer_allocate(Layer* self) {
  const uint64_t size = (uint64_t)self->type->size;
  const uint64_t row = (uint64_t)(self->heads * self->head_size) * size;
  const uint64_t kv_row = (uint64_t)(self->kv_heads * self->head_size) * size;
  const uint64_t rows = (uint64_t)self->rows;
  const uint64_t capacity = (uint64_t)self->capacity;
  const uint64_t table = capacity * (uint64_t)(self->head_size / 2) * sizeof(float);
  const uint64_t bytes[kBufferCount] = {[kQuery] = rows * row,
                                        [kKey] = rows * kv_row,
                                        [kValue] = rows * kv_row,
                                        [kOutput] = rows * row,
                                        [kStepQuery] = row,
                                        [kStepKey] = kv_row,
                                        [kStepValue] = kv_row,
                                        [kStepOutput] = row,
                                        [kKeyCache] = capacity * kv_row,
                                        [kValueCache] = capacity * kv_row,
                                        [kCos] = table,
                                        [kSin] = table,
                                        [kLength] = sizeof(int32_t)};
  for (int i = 0; i < kBufferCount; ++i) {
    self->buffers[i].bytes = bytes[i];
    TRY("allocate memory",
        self->plugin->host->host_memory_alloc(self->context, ATTN_MEMORY_DEVICE, bytes[i],
                                              &self->buffers[i].data, &error));
  }
  return 0;
}

/* Rounds recorded numbers to the layer's type and puts them on the device. */
static int upload(Layer* self, int buffer, const RecordedTensor* tensor) {
  const size_t size = (size_t)self->type->size;
  const size_t count = (size_t)(tensor->shape[0] * tensor->shape[1]);
  unsigned char* staging = malloc(count * size);
  if (staging == NULL) return out_of_memory();
  for (size_t i = 0; i < count; ++i) self->type->encode(tensor->data[i], staging + i * size);
  int status = copy(self, self->buffers[buffer].data, staging, count * size);
  if (status == 0) status = synchronize(self);
  free(staging);
  return status;
}

/* cos and sin of position * base^(-2c / head size). */
static int upload_tables(Layer* self) {
  const int64_t half = self->head_size / 2;
  const uint64_t bytes = self->buffers[kCos].bytes;
  float* cosines = malloc(bytes);
  float* sines = malloc(bytes);
  int status = cosines != NULL && sines != NULL ? 0 : out_of_memory();
  for (int64_t i = 0; status == 0 && i < self->capacity * half; ++i) {
    const double exponent = -2.0 * (double)(i % half) / (double)self->head_size;
    const double angle = (double)(i / half) * pow(self->recorded->rope_base, exponent);
    cosines[i] = (float)cos(angle);
    sines[i] = (float)sin(angle);
  }
  if (status == 0) status = copy(self, self->buffers[kCos].data, cosines, bytes);
  if (status == 0) status = copy(self, self->buffers[kSin].data, sines, bytes);
  if (status == 0) status = synchronize(self);
  free(cosines);
  free(sines);
  return status;
}

int layer_fill(Layer* self) {
  if (upload_tables(self) != 0) return -1;
  if (upload(self, kQuery, &self->recorded->query) != 0) return -1;
  if (upload(self, kKey, &self->recorded->key) != 0) return -1;
  return upload(self, kValue, &self->recorded->value);
}

int layer_poison(Layer* self) {
  static const int kTargets[] = {kOutput, kStepOutput, kKeyCache, kValueCache};
  for (size_t i = 0; i < sizeof kTargets / sizeof kTargets[0]; ++i) {
    const uint64_t bytes = self->buffers[kTargets[i]].bytes;
    void* staging = malloc(bytes);
    if (staging == NULL) return out_of_memory();
    memset(staging, 0xff, bytes); /* NaN in every type */
    int status = copy(self, self->buffers[kTargets[i]].data, staging, bytes);
    if (status == 0) status = synchronize(self);
    free(staging);
    if (status != 0) return -1;
  }
  return 0;
}

int layer_set_length(Layer* self, int64_t total) {
  const int32_t value = (int32_t)(total - 1);
  if (copy(self, self->buffers[kLength].data, &value, sizeof value) != 0) return -1;
  return synchronize(self);
}

int layer_load_step(Layer* self, int64_t row) {
  static const int kSources[3] = {kQuery, kKey, kValue};
  static const int kTargets[3] = {kStepQuery, kStepKey, kStepValue};
  for (int i = 0; i < 3; ++i) {
    const uint64_t bytes = self->buffers[kTargets[i]].bytes;
    const char* rows = self->buffers[kSources[i]].data;
    if (copy(self, self->buffers[kTargets[i]].data, rows + (uint64_t)row * bytes, bytes) != 0) {
      return -1;
    }
  }
  return layer_set_length(self, row + 1);
}

int layer_store_step(Layer* self, int64_t row) {
  const uint64_t bytes = self->buffers[kStepOutput].bytes;
  char* rows = self->buffers[kOutput].data;
  return copy(self, rows + (uint64_t)row * bytes, self->buffers[kStepOutput].data, bytes);
}

static unsigned char* download(Layer* self, int buffer) {
  unsigned char* host = malloc(self->buffers[buffer].bytes);
  if (host == NULL) {
    out_of_memory();
    return NULL;
  }
  if (copy(self, host, self->buffers[buffer].data, self->buffers[buffer].bytes) == 0 &&
      synchronize(self) == 0) {
    return host;
  }
  free(host);
  return NULL;
}

int layer_collect(Layer* self, Outcome* out) {
  out->output = download(self, kOutput);
  out->keys = download(self, kKeyCache);
  out->values = download(self, kValueCache);
  return out->output != NULL && out->keys != NULL && out->values != NULL ? 0 : -1;
}

void outcome_free(Outcome* out) {
  free(out->output);
  free(out->keys);
  free(out->values);
  memset(out, 0, sizeof *out);
}
