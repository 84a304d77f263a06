// The engine matrix of Attention from the command line.
#include "matrix/attention_case.h"
#include "matrix/matrix_main.h"

int main(int argc, char** argv) {
  attn::matrix::AttentionDraw draw;
  return attn::matrix::matrix_main(argc, argv,
                                   {{"--decode", "one query row alone", &draw.decode_only}},
                                   [&] { return attn::matrix::attention_matrix_options(draw); });
}
