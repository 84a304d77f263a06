// The engine matrix of VarlenAttention and PackedVarlenAttention from the command line.
#include "matrix/matrix_main.h"
#include "matrix/varlen_case.h"

int main(int argc, char** argv) {
  return attn::matrix::matrix_main(argc, argv, {},
                                   [] { return attn::matrix::varlen_matrix_options(); });
}
