/* Compares what a run left behind with the recording. */
#include "verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In units of the type's rounding error at the largest recorded number. A rotated key is rounded
 * before and after the rotation, which can grow a channel by sqrt(2): 4 is the most. The output has
 * no such hard limit: in 16-bit types it is the rounded queries and keys that count, in float32 the
 * rounding of long sums and of large scores. */
#define KEY_UNITS 4.0
#define OUTPUT_UNITS_16 8.0
#define OUTPUT_UNITS_32 32.0

static double largest(const RecordedTensor* tensor) {
  int64_t count = 1;
  double result = 0;
  for (int32_t i = 0; i < tensor->rank; ++i) count *= tensor->shape[i];
  for (int64_t i = 0; i < count; ++i) result = fmax(result, fabs((double)tensor->data[i]));
  return result;
}

static int is_poison(const unsigned char* element, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (element[i] != 0xff) return 0;
  }
  return 1;
}

/* One cache element: head, row and channel of a buffer with `capacity` rows a head. */
static const unsigned char* cached(const Layer* self, const unsigned char* cache, int64_t head,
                                   int64_t row, int64_t channel) {
  return cache + ((head * self->capacity + row) * self->head_size + channel) * self->type->size;
}

static void verify_cache_row(const Layer* self, const Outcome* result, int64_t head, int64_t row,
                             Verdict* out) {
  const RecordedLayer* recorded = self->recorded;
  for (int64_t channel = 0; channel < self->head_size; ++channel) {
    const unsigned char* key = cached(self, result->keys, head, row, channel);
    const unsigned char* value = cached(self, result->values, head, row, channel);
    if (row >= self->rows) {
      out->touched += !is_poison(key, self->type->size) + !is_poison(value, self->type->size);
      continue;
    }
    const int64_t index = (head * self->rows + row) * self->head_size + channel;
    difference_add(&out->keys, index, self->type->decode(key), recorded->present_key.data[index]);
    unsigned char expected[4];
    self->type->encode(
        recorded->value.data[(row * self->kv_heads + head) * self->head_size + channel], expected);
    out->wrong_values += memcmp(value, expected, (size_t)self->type->size) != 0;
  }
}

void verify(const Layer* self, const Outcome* result, Verdict* out) {
  const RecordedLayer* recorded = self->recorded;
  memset(out, 0, sizeof *out);
  const double units = self->type->size == 4 ? OUTPUT_UNITS_32 : OUTPUT_UNITS_16;
  out->output_bound = units * self->type->unit_roundoff * largest(&recorded->output);
  out->keys_bound = KEY_UNITS * self->type->unit_roundoff * largest(&recorded->present_key);
  const int64_t outputs = self->rows * self->heads * self->head_size;
  for (int64_t i = 0; i < outputs; ++i) {
    difference_add(&out->output, i, self->type->decode(result->output + i * self->type->size),
                   recorded->output.data[i]);
  }
  for (int64_t head = 0; head < self->kv_heads; ++head) {
    for (int64_t row = 0; row < self->capacity; ++row) {
      verify_cache_row(self, result, head, row, out);
    }
  }
}

static int within(const Layer* self, const char* what, const Difference* found, double bound,
                  int64_t row_length) {
  if (found->largest <= bound) return 1;
  fprintf(stderr,
          "layer %lld, %s: %s row %lld, element %lld is %.9g, recorded %.9g: off by %.3g, more "
          "than %.3g\n",
          (long long)self->recorded->number, self->type->name, what,
          (long long)(found->index / row_length), (long long)(found->index % row_length),
          (double)found->got, (double)found->expected, found->largest, bound);
  return 0;
}

static int is_zero(const Layer* self, const char* what, int64_t count) {
  if (count == 0) return 1;
  fprintf(stderr, "layer %lld, %s: %lld %s\n", (long long)self->recorded->number, self->type->name,
          (long long)count, what);
  return 0;
}

int verdict_holds(const Layer* self, const Verdict* verdict) {
  int good = within(self, "output", &verdict->output, verdict->output_bound,
                    self->heads * self->head_size);
  good &= within(self, "cached key", &verdict->keys, verdict->keys_bound, self->head_size);
  good &= is_zero(self, "cached values differ from the values that went in", verdict->wrong_values);
  good &= is_zero(self, "cache elements beyond the valid rows were written", verdict->touched);
  return good;
}
