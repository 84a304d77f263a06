/* Compares what a call returned and left in memory with what a golden case expects. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_file.h"

static int64_t elements_of(const golden_argument* argument) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < argument->ndim; ++axis) count *= argument->shape[axis];
  return count;
}

/* Bytes from the block's begin to element number `linear` in row-major order. */
static size_t position_of(const golden_argument* argument, int64_t linear) {
  int64_t offset = 0;
  for (int32_t axis = argument->ndim; axis-- > 0;) {
    offset += linear % argument->shape[axis] * argument->strides[axis];
    linear /= argument->shape[axis];
  }
  return (size_t)((int64_t)argument->byte_offset + offset * (argument->bits / 8));
}

static double float16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25);
  if (exponent == 31) value = fraction == 0 ? INFINITY : NAN;
  return bits >> 15 ? -value : value;
}

static double element(const golden_argument* argument, int64_t linear) {
  const unsigned char* at = argument->block->data + position_of(argument, linear);
  uint16_t half;
  float single;
  double value;
  if (argument->bits == 64) {
    memcpy(&value, at, 8);
    return value;
  }
  if (argument->bits == 32) {
    memcpy(&single, at, 4);
    return single;
  }
  memcpy(&half, at, 2);
  if (argument->code == 2) return float16_value(half);
  const uint32_t wide = (uint32_t)half << 16;
  memcpy(&single, &wide, 4);
  return single;
}

static int check_bytes(const golden_result* result, char* report, size_t capacity) {
  const golden_argument* output = result->output;
  const size_t size = output->bits / 8u;
  for (int64_t i = 0; i < elements_of(output); ++i) {
    const unsigned char* got = output->block->data + position_of(output, i);
    if (memcmp(got, result->bytes + (size_t)i * size, size) == 0) continue;
    snprintf(report, capacity, "output %u: element %lld has other bits", output->slot,
             (long long)i);
    return 0;
  }
  return 1;
}

static int check_values(const golden_result* result, char* report, size_t capacity) {
  double whole = 0;
  for (int64_t row = 0; row < result->rows; ++row) {
    double sum = 0;
    for (int64_t i = row * result->row_length; i < (row + 1) * result->row_length; ++i) {
      const double want = result->values[i], got = element(result->output, i);
      if (isnan(want) || got == want) continue;
      sum += (got - want) * (got - want); /* infinite or NaN where either is */
    }
    whole += sum;
    if (sqrt(sum) <= result->bounds[row]) continue;
    snprintf(report, capacity, "output %u: row %lld is off by %g, at most %g", result->output->slot,
             (long long)row, sqrt(sum), result->bounds[row]);
    return 0;
  }
  if (sqrt(whole) <= result->bounds[result->rows]) return 1;
  snprintf(report, capacity, "output %u is off by %g, at most %g", result->output->slot,
           sqrt(whole), result->bounds[result->rows]);
  return 0;
}

/* Bytes that are no element of an output are as they were; all of them where the call failed. */
static int check_memory(const golden_case* c, int written, char* report, size_t capacity) {
  for (uint32_t b = 0; b < c->block_count; ++b) {
    const golden_block* block = &c->blocks[b];
    unsigned char* free_bytes = calloc(block->bytes + 1, 1);
    for (uint32_t i = 0; written && i < c->output_count; ++i) {
      if (c->outputs[i].block != block) continue;
      for (int64_t at = 0; at < elements_of(&c->outputs[i]); ++at) {
        memset(free_bytes + position_of(&c->outputs[i], at), 1, c->outputs[i].bits / 8u);
      }
    }
    size_t at = 0;
    while (at < block->bytes && (free_bytes[at] || block->data[at] == block->before[at])) ++at;
    free(free_bytes);
    if (at == block->bytes) continue;
    snprintf(report, capacity, "memory block %u was written at byte %zu", b, at);
    return 0;
  }
  return 1;
}

int golden_check(const golden_case* c, int32_t status, const char* message, char* report,
                 size_t capacity) {
  if (status != c->error_status) {
    snprintf(report, capacity, "status %d, expected %d: %s", status, c->error_status, message);
    return 0;
  }
  if (c->error_message != NULL &&
      strncmp(message, c->error_message, strlen(c->error_message)) != 0) {
    snprintf(report, capacity, "the message is: %s", message);
    return 0;
  }
  for (uint32_t i = 0; i < c->result_count; ++i) {
    const golden_result* result = &c->results[i];
    if (!(result->bytes != NULL ? check_bytes(result, report, capacity)
                                : check_values(result, report, capacity))) {
      return 0;
    }
  }
  return check_memory(c, status == 0, report, capacity);
}

uint64_t golden_digest(const golden_case* c, const char* message) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint32_t b = 0; b < c->block_count; ++b) {
    for (size_t i = 0; i < c->blocks[b].bytes; ++i) {
      hash = (hash ^ c->blocks[b].data[i]) * 0x100000001b3u;
    }
  }
  for (const char* p = message; p != NULL && *p != 0; ++p) {
    hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
  }
  return hash;
}
