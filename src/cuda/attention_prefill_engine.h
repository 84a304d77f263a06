// What the engines for many query rows have in common: a block works on a tile of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/error.h"
#include "cuda/attention_engine_parts.h"

namespace attn::cuda {

// Query rows and keys of a block's tile, and the warps that share it.
struct Tile {
  int rows, keys, warps;
};

// The first tile that fits the device, else the last. Chosen so that no variant spills
// (tests/kernels checks it).
template <size_t n>
Tile first_that_fits(const Tile (&tiles)[n], const AttentionSpec& spec, const DeviceTraits& device,
                     int (*bytes)(const AttentionSpec&, const Tile&)) {
  for (const Tile& tile : tiles) {
    if (bytes(spec, tile) <= device.shared_bytes_per_block) return tile;
  }
  return tiles[n - 1];
}

class PrefillEngine : public AttentionEngine {
 public:
  size_t partial_bytes(const AttentionSpec&, const ShapeRange&, const DeviceTraits&,
                       bool) const override {
    return 0;
  }
  bool takes_rows(const AttentionSpec&, int64_t) const override { return true; }
  bool accepts(const AttentionProblem& problem) const override {
    return takes_rows(problem.spec, problem.query_rows) && all_aligned(problem);
  }
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits& device,
                    bool) const override {
    const int rows = tile(problem.spec, device).rows;
    int64_t tiles = divide_up(problem.query_rows, rows) * problem.batch;
    // Packed tokens bound the tiles of all sequences: each has one at most that is not full.
    if (problem.spec.packed) tiles = std::min(tiles, problem.query.rows / rows + problem.batch);
    return {tiles * problem.spec.q_heads, 1, rows};
  }
  std::string summary(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Tile t = tile(spec, device);
    return cat("tiles of ", t.rows, " rows x ", t.keys, " keys, ", t.warps, " warps");
  }
  virtual Tile tile(const AttentionSpec& spec, const DeviceTraits& device) const = 0;
};

}  // namespace attn::cuda
