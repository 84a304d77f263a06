// The engine matrix of GroupQueryAttention from the command line.
#include "matrix/gqa_draw.h"
#include "matrix/matrix_main.h"

int main(int argc, char** argv) {
  attn::matrix::DrawOptions draw;
  return attn::matrix::matrix_main(
      argc, argv,
      {{"--decode", "one-token steps alone", &draw.decode_only},
       {"--models", "head sizes of models alone", &draw.model_heads_only}},
      [&] { return attn::matrix::gqa_matrix_options(draw); });
}
