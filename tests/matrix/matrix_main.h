// The engine matrix of an operator from the command line, for reproducing one failure or for long
// runs.
#pragma once

#include <string>
#include <vector>

#include "matrix/matrix.h"

namespace attn::matrix {

// A flag of one operator's own program.
struct MatrixFlag {
  std::string name;     // "--decode"
  std::string meaning;  // "one-token steps alone"
  bool* given;          // set where the flag is among the arguments
};

// Runs `--count` problems from `--seed` on, under one `--engine` and `--level` or under all;
// returns the exit status: 1 when a problem failed, 2 for arguments that are not known. `options`
// is called when the flags are known.
int matrix_main(int argc, char** argv, const std::vector<MatrixFlag>& flags,
                const std::function<MatrixOptions()>& options);

}  // namespace attn::matrix
