// The engine matrix of the operators that work row by row, from the command line.
#include "matrix/matrix_main.h"
#include "matrix/rotary_case.h"
#include "matrix/scatter_case.h"

int main(int argc, char** argv) {
  bool scatter = false;
  return attn::matrix::matrix_main(
      argc, argv, {{"--scatter", "TensorScatter; otherwise RotaryEmbedding", &scatter}}, [&] {
        return scatter ? attn::matrix::scatter_matrix_options()
                       : attn::matrix::rotary_matrix_options();
      });
}
