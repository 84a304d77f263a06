/* The element types of the example: conversion and comparison on the host. */
#ifndef ATTN_EXAMPLE_NUMBERS_H_
#define ATTN_EXAMPLE_NUMBERS_H_

#include <stdint.h>

#include "attn_c.h"

typedef struct ElementType {
  const char* name;
  attn_dtype dtype;
  int64_t size;         /* bytes */
  double unit_roundoff; /* largest relative error of rounding to the nearest */
  void (*encode)(float value, void* element);
  float (*decode)(const void* element);
} ElementType;

#define ELEMENT_TYPE_COUNT 3
extern const ElementType kElementTypes[ELEMENT_TYPE_COUNT]; /* float32, float16, bfloat16 */

/* The largest difference between two lists of numbers, and where. NaN counts as infinitely far. */
typedef struct Difference {
  double largest;
  int64_t index;
  float got, expected;
} Difference;

/* Adds a number to a difference that began as all zeros. */
void difference_add(Difference* self, int64_t index, float got, float expected);

#endif
