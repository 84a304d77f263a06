/* The element types of the example: conversion and comparison on the host. */
#include "numbers.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void encode_float32(float value, void* element) { memcpy(element, &value, sizeof value); }

static float decode_float32(const void* element) {
  float value;
  memcpy(&value, element, sizeof value);
  return value;
}

/* Round to nearest, ties to even. */
static void encode_bfloat16(float value, void* element) {
  uint32_t bits = bits_of(value);
  bits = isnan(value) ? bits | 0x00400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  const uint16_t half = (uint16_t)(bits >> 16);
  memcpy(element, &half, sizeof half);
}

static float decode_bfloat16(const void* element) {
  uint16_t half;
  memcpy(&half, element, sizeof half);
  return float_of((uint32_t)half << 16);
}

/* Scaling by powers of two is exact, so the current rounding mode (nearest, ties to even) does the
 * work: rint rounds to multiples of the last place of the value's binade. */
static void encode_float16(float value, void* element) {
  const uint16_t sign = (uint16_t)(bits_of(value) >> 16 & 0x8000u);
  const double magnitude = fabs((double)value);
  uint16_t half;
  if (isnan(value)) {
    half = 0x7e00u;
  } else if (magnitude >= 65520.0) {
    half = 0x7c00u; /* infinity, and what rounds to it */
  } else if (magnitude < 0x1p-14) {
    half = (uint16_t)rint(magnitude * 0x1p24); /* subnormal, or just up to the first normal */
  } else {
    int exponent;
    const double fraction = frexp(magnitude, &exponent); /* in [0.5, 1) */
    /* 1024..2048; 2048 carries into the exponent by itself. */
    half = (uint16_t)((exponent + 14) * 1024 + ((int)rint(fraction * 2048.0) - 1024));
  }
  half = (uint16_t)(half | sign);
  memcpy(element, &half, sizeof half);
}

static float decode_float16(const void* element) {
  uint16_t half;
  memcpy(&half, element, sizeof half);
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? (float)NAN : (float)(sign * INFINITY);
  if (exponent == 0) return (float)(sign * fraction * 0x1p-24);
  return (float)(sign * ldexp(1024 + fraction, exponent - 25));
}

const ElementType kElementTypes[ELEMENT_TYPE_COUNT] = {
    {"float32", {ATTN_DTYPE_FLOAT, 32, 1}, 4, 0x1p-24, encode_float32, decode_float32},
    {"float16", {ATTN_DTYPE_FLOAT, 16, 1}, 2, 0x1p-11, encode_float16, decode_float16},
    {"bfloat16", {ATTN_DTYPE_BFLOAT, 16, 1}, 2, 0x1p-8, encode_bfloat16, decode_bfloat16},
};

void difference_add(Difference* self, int64_t index, float got, float expected) {
  double distance = fabs((double)got - (double)expected);
  if (isnan(distance)) distance = INFINITY;
  if (distance <= self->largest) return;
  self->largest = distance;
  self->index = index;
  self->got = got;
  self->expected = expected;
}
