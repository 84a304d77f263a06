// The engine matrix of LinearAttention from the command line.
#include "matrix/linear_case.h"
#include "matrix/matrix_main.h"

int main(int argc, char** argv) {
  return attn::matrix::matrix_main(argc, argv, {},
                                   [] { return attn::matrix::linear_matrix_options(); });
}
