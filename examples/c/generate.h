/* Runs a layer as a model does: the prompt at once, then one token after the other. */
#ifndef ATTN_EXAMPLE_GENERATE_H_
#define ATTN_EXAMPLE_GENERATE_H_

#include "layer.h"

/* The library's two ways to run an operator. */
typedef enum Way {
  kBindingWay, /* an object remembers the tensors, prepares and executes */
  kPlanWay     /* a plan that layers can share; tensors come with every execution. The example
                * captures this way where the device can. */
} Way;

/* Which engine served the attention of a call, and why that one. */
typedef struct Choice {
  char engine[48];
  char why[1200];
} Choice;

typedef struct Generation {
  Outcome outcome;
  Choice prompt;
  Choice step;
  int captured;        /* the step was captured once and replayed for every token */
  char capture[512];   /* why not, or what the capture fixes */
  double microseconds; /* of one step at the last token, host time */
} Generation;

/* Runs all rows of the layer. Returns 0, or -1 after printing; free it in both cases. */
int generate(Layer* self, Way way, Generation* out);
void generation_free(Generation* out);

#endif
