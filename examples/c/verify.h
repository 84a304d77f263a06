/* Compares what a run left behind with the recording. */
#ifndef ATTN_EXAMPLE_VERIFY_H_
#define ATTN_EXAMPLE_VERIFY_H_

#include "layer.h"

typedef struct Verdict {
  Difference output; /* against the recorded output, every row */
  double output_bound;
  Difference keys; /* the cache's keys against the recorded ones */
  double keys_bound;
  int64_t wrong_values; /* cache elements that are not exactly the values that went in */
  int64_t touched;      /* cache elements beyond the valid rows that lost their poison */
} Verdict;

/* Fills `out`. The bounds grow with the type's rounding error and the largest recorded number:
 * inputs, cached keys, probabilities and outputs are each rounded to the type once, and the softmax
 * passes on what the scores lose. */
void verify(const Layer* self, const Outcome* result, Verdict* out);

/* Whether everything lies within its bound; prints what does not to stderr. */
int verdict_holds(const Layer* self, const Verdict* verdict);

#endif
