#include "cuda/attention_engines.h"

#include <algorithm>

#include "core/error.h"
#include "cuda/cuda_session.h"
#include "cuda/launch_params.h"

namespace attn::cuda {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int padded(int size) { return (size + 15) / 16 * 16; }

bool refuse(std::string* why_not, std::string reason) {
  if (why_not != nullptr) *why_not = std::move(reason);
  return false;
}

int64_t group_of(const AttentionSpec& spec) { return spec.q_heads / spec.kv_heads; }

// The one place keys are read from, if it is one: the cache, or the new rows where there is none.
bool reads_one_buffer(const AttentionSpec& spec) {
  const bool key = !spec.key_fresh || (!spec.key_cached && !spec.key_transform.any());
  const bool value = !spec.value_fresh || !spec.value_cached;
  return key && value;
}

bool fits_tiles(const AttentionSpec& spec, int elements_in_16_bytes, std::string* why_not) {
  if (!spec.unit_channel) return refuse(why_not, "channels are not contiguous");
  if (spec.head_size > 256 || spec.v_head_size > 256) {
    return refuse(why_not,
                  cat("head size ", std::max(spec.head_size, spec.v_head_size), " is above 256"));
  }
  if (spec.head_size % elements_in_16_bytes != 0 || spec.v_head_size % elements_in_16_bytes != 0) {
    return refuse(why_not, cat("a head of ", spec.head_size, " or ", spec.v_head_size,
                               " elements is no multiple of 16 bytes"));
  }
  if (spec.scores != ScoreStage::kNone) return refuse(why_not, "score outputs are wanted");
  if (!reads_one_buffer(spec)) {
    return refuse(why_not, "keys come from a past buffer and new rows at once");
  }
  return true;
}

// A variant's dynamic shared memory, with what its kernel holds beside it statically, must fit the
// device's limit for one block.
bool fits_shared_memory(const KernelVariant& variant, int static_bytes, const DeviceTraits& device,
                        std::string* why_not) {
  const int bytes = variant.shared_bytes + static_bytes;
  if (bytes <= device.shared_bytes_per_block) return true;
  return refuse(why_not, cat("needs ", bytes, " bytes of shared memory a block, ",
                             device.architecture, " has ", device.shared_bytes_per_block));
}

bool is_16_bit(DType type) { return type == kFloat16 || type == kBfloat16; }

// Rows can be copied in pieces of 16 bytes.
bool aligned(const View4& v, int elements_in_16_bytes) {
  const int mask = elements_in_16_bytes - 1;
  return (reinterpret_cast<uintptr_t>(v.data) & 15) == 0 && (v.batch & mask) == 0 &&
         (v.head & mask) == 0 && (v.row & mask) == 0;
}

bool all_aligned(const AttentionProblem& problem) {
  const int in_16 = problem.spec.type == kFloat32 ? 4 : 8;
  const View4& key = problem.spec.key_fresh ? problem.key_fresh : problem.key;
  const View4& value = problem.spec.value_fresh ? problem.value_fresh : problem.value;
  return aligned(problem.query, in_16) && aligned(key, in_16) && aligned(value, in_16) &&
         aligned(problem.output, in_16);
}

std::vector<std::string> softmax_definitions(const AttentionSpec& spec) {
  return {cat("ATTN_TYPE=", type_number(spec.type)),
          cat("HEAD_SIZE=", spec.head_size),
          cat("V_HEAD_SIZE=", spec.v_head_size),
          cat("MASK_KIND=", static_cast<int>(spec.mask)),
          cat("SINK_KIND=", static_cast<int>(spec.sink)),
          cat("SOFTCAP=", spec.softcap != 0 ? 1 : 0),
          cat("HAS_LSE=", spec.log_sum_exp ? 1 : 0),
          cat("QUERY_TRANSFORM=", spec.query_transform.any() ? 1 : 0),
          cat("PLAIN_SCALE=", spec.scale > 0 ? 1 : 0),
          cat("PACKED=", spec.packed ? 1 : 0)};
}

void define(KernelVariant& variant, const char* name, int value) {
  variant.definitions.push_back(cat(name, "=", value));
}

// ---- prefill ------------------------------------------------------------------------------------

struct Tile {
  int rows, keys, warps;
};

// Bytes of the Q tile and of one K and one V tile, rows padded by 16 bytes. The Q tile also takes
// the output, in 16-bit kernels.
int mma_shared_bytes(const AttentionSpec& spec, const Tile& t) {
  const int dk = padded(spec.head_size) + 8, dv = padded(spec.v_head_size) + 8;
  return 2 * (t.rows * std::max(dk, dv) + t.keys * (dk + dv));
}
int float32_shared_bytes(const AttentionSpec& spec, const Tile& t) {
  const int dk = padded(spec.head_size) + 4, dv = padded(spec.v_head_size) + 4;
  return 4 * (t.rows * dk + t.keys * (dk + dv));
}

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

Tile mma_tile(const AttentionSpec& spec, const DeviceTraits& device) {
  const int d = std::max(spec.head_size, spec.v_head_size);
  if (d <= 64) return {128, 64, 4};
  constexpr Tile kTiles[] = {{128, 64, 8}, {64, 32, 4}};
  return first_that_fits(kTiles, spec, device, mma_shared_bytes);
}

Tile float32_tile(const AttentionSpec& spec, const DeviceTraits& device) {
  const int d = std::max(spec.head_size, spec.v_head_size);
  if (d <= 64) return {128, 64, 8};
  constexpr Tile kTiles[] = {{128, 32, 8}, {64, 32, 4}, {64, 16, 4}};
  constexpr Tile kWideTiles[] = {{128, 16, 8}, {64, 16, 4}};  // more keys spill
  return d <= 192 ? first_that_fits(kTiles, spec, device, float32_shared_bytes)
                  : first_that_fits(kWideTiles, spec, device, float32_shared_bytes);
}

// Blocks that a multiprocessor is to hold at once, for which the compiler then limits registers; 0
// leaves them to it. Two hide each other's waits, where that takes no spilled register.
int float32_blocks(const AttentionSpec& spec, const Tile& t, const DeviceTraits& device) {
  const int d = std::max(padded(spec.head_size), padded(spec.v_head_size));
  const bool fits = 2 * (float32_shared_bytes(spec, t) + 1024) <= device.shared_bytes_per_block;
  return d == 128 && fits ? 2 : 0;
}

// What the decode engine takes: its rows fill few tiles.
bool has_few_rows(const AttentionProblem& problem) {
  return problem.query_rows <= kDecodeQueries && problem.query_rows * group_of(problem.spec) <= 64;
}

class PrefillEngine : public AttentionEngine {
 public:
  size_t partial_bytes(const AttentionSpec&, const ShapeRange&, const DeviceTraits&,
                       bool) const override {
    return 0;
  }
  bool accepts(const AttentionProblem& problem) const override { return all_aligned(problem); }
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

class MmaPrefill final : public PrefillEngine {
 public:
  const char* name() const override { return "mma-prefill"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (!is_16_bit(spec.type)) return refuse(why_not, "only float16 and bfloat16");
    return fits_tiles(spec, 8, why_not) &&
           fits_shared_memory(variant(spec, device), 0, device, why_not);
  }
  Tile tile(const AttentionSpec& spec, const DeviceTraits& device) const override {
    return mma_tile(spec, device);
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Tile t = mma_tile(spec, device);
    KernelVariant out{"softmax/attention_mma.cu", "attn_attention_mma", softmax_definitions(spec)};
    define(out, "BLOCK_M", t.rows);
    define(out, "BLOCK_N", t.keys);
    define(out, "WARPS", t.warps);
    out.threads = 32 * t.warps;
    out.shared_bytes = mma_shared_bytes(spec, t);
    return out;
  }
};

// As in attention_mma.cu, which takes fewer rows with more products.
constexpr int64_t kAveragingRows = 32;

// Padded to whole rows of 128 bytes.
int swizzled_size(int size) { return (size + 63) / 64 * 64; }

// The barriers.
constexpr int kWgmmaStaticBytes = 1024;

struct WgmmaTile {
  int consumers, keys, producer_registers, consumer_registers;
};

WgmmaTile wgmma_tile(const AttentionSpec& spec) {
  const int d = std::max(swizzled_size(spec.head_size), swizzled_size(spec.v_head_size));
  const bool plain = spec.mask == MaskKind::kNone && spec.softcap == 0 && spec.scale > 0;
  if (d <= 64 && plain) return {3, 128, 32, 160};
  if (d <= 128) return {2, plain ? 128 : 64, 56, 224};
  return {2, 64, 56, 224};
}

// Buffers in shared memory: of query rows, and of keys and values each.
struct WgmmaBuffers {
  int queries = 1, stages = 2, bytes = 0;
};

// The next tile's query rows come ahead where they need no transform and there is room beside two
// stages; then as many stages as there is room for, up to four.
WgmmaBuffers wgmma_buffers(const AttentionSpec& spec, const DeviceTraits& device) {
  const WgmmaTile t = wgmma_tile(spec);
  const int dk = swizzled_size(spec.head_size), dv = swizzled_size(spec.v_head_size);
  const int query_bytes = 2 * 64 * t.consumers * dk, stage_bytes = 2 * t.keys * (dk + dv);
  // Tiles begin on 1024 bytes; a query transform needs a row of floats a consumer warp.
  int rest = 1024 + (spec.query_transform.any() ? 4 * t.consumers * dk * 4 : 0);
  if (spec.mask == MaskKind::kBoolean) rest += 5 * 64 * t.consumers * 8;  // its cells' bits
  const int room = device.shared_bytes_per_block - kWgmmaStaticBytes - rest;
  WgmmaBuffers out;
  if (!spec.query_transform.any() && 2 * query_bytes + 2 * stage_bytes <= room) out.queries = 2;
  while (out.stages < 4 && out.queries * query_bytes + (out.stages + 1) * stage_bytes <= room) {
    ++out.stages;
  }
  out.bytes = rest + out.queries * query_bytes + out.stages * stage_bytes;
  return out;
}

class WgmmaPrefill final : public PrefillEngine {
 public:
  const char* name() const override { return "wgmma-prefill"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (device.target != "sm_90a") return refuse(why_not, cat("not on ", device.architecture));
    if (!is_16_bit(spec.type)) return refuse(why_not, "only float16 and bfloat16");
    return fits_tiles(spec, 8, why_not) &&
           fits_shared_memory(variant(spec, device), kWgmmaStaticBytes, device, why_not);
  }
  // Its weights are rounded to 16 bits, which few rows do not average out.
  bool accepts(const AttentionProblem& problem) const override {
    const int64_t tiles = divide_up(problem.query_rows, 64) * problem.batch * problem.spec.q_heads;
    return problem.query_rows >= kAveragingRows && tiles <= INT32_MAX &&
           PrefillEngine::accepts(problem);
  }
  Tile tile(const AttentionSpec& spec, const DeviceTraits&) const override {
    const WgmmaTile t = wgmma_tile(spec);
    return {64 * t.consumers, t.keys, 4 * (t.consumers + 1)};
  }
  // A block a multiprocessor, which takes tiles until there are no more.
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits& device,
                    bool batch_invariant) const override {
    const LaunchShape tiles = PrefillEngine::shape(problem, device, batch_invariant);
    return {std::min<int64_t>(tiles.blocks, device.multiprocessors), 1, tiles.tile_rows};
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const WgmmaTile t = wgmma_tile(spec);
    const WgmmaBuffers buffers = wgmma_buffers(spec, device);
    KernelVariant out{"softmax/attention_wgmma.cu", "attn_attention_wgmma",
                      softmax_definitions(spec)};
    define(out, "BLOCK_N", t.keys);
    define(out, "QUERIES", buffers.queries);
    define(out, "STAGES", buffers.stages);
    define(out, "CONSUMERS", t.consumers);
    define(out, "PRODUCER_REGISTERS", t.producer_registers);
    define(out, "CONSUMER_REGISTERS", t.consumer_registers);
    out.threads = 128 * (t.consumers + 1);
    out.shared_bytes = buffers.bytes;
    return out;
  }
};

class Float32Prefill final : public PrefillEngine {
 public:
  const char* name() const override { return "float32-prefill"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (spec.type != kFloat32) return refuse(why_not, "only float32");
    return fits_tiles(spec, 4, why_not) &&
           fits_shared_memory(variant(spec, device), 0, device, why_not);
  }
  // Sums of cut products are as precise as the decode engine's only over many rows.
  bool accepts(const AttentionProblem& problem) const override {
    return !has_few_rows(problem) && PrefillEngine::accepts(problem);
  }
  Tile tile(const AttentionSpec& spec, const DeviceTraits& device) const override {
    return float32_tile(spec, device);
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Tile t = float32_tile(spec, device);
    KernelVariant out{"softmax/attention_float32.cu", "attn_attention_float32",
                      softmax_definitions(spec)};
    define(out, "BLOCK_M", t.rows);
    define(out, "BLOCK_N", t.keys);
    define(out, "WARPS", t.warps);
    define(out, "BLOCKS", float32_blocks(spec, t, device));
    out.threads = 32 * t.warps;
    out.shared_bytes = float32_shared_bytes(spec, t);
    return out;
  }
};

// ---- decode -------------------------------------------------------------------------------------

// Weights of the merge must fit the shared memory of the smallest variant: 16 rows x 4 bytes each.
constexpr int64_t kMaxSplits = 256;
constexpr int kDecodeRows = 16, kDecodeKeys = 16;
// Tops and sums of the warps' rows, and who came last.
constexpr int kDecodeStaticBytes = 1024;

// The warps of a block and the buffers of 16 keys that each of them has.
struct Ring {
  int warps, stages;
};

// Rows of a tile: the float32 kernel has few where a group's heads are few.
int decode_rows(const AttentionSpec& spec) {
  return is_16_bit(spec.type) || group_of(spec) > 4 ? kDecodeRows : 4;
}

int decode_shared_bytes(const AttentionSpec& spec, const Ring& r) {
  if (spec.type == kFloat32) {
    const int rows = decode_rows(spec), dk = (spec.head_size + 31) / 32 * 32 + 4;
    const int queries = rows * spec.head_size + r.warps * kDecodeKeys * rows;
    const int ring = r.warps * r.stages * kDecodeKeys * (dk + spec.v_head_size);
    return 4 * std::max(queries + ring, r.warps * rows * spec.v_head_size);
  }
  const int dk = padded(spec.head_size) + 8, dv = padded(spec.v_head_size) + 8;
  const int ring = r.warps * r.stages * kDecodeKeys * (dk + dv) * 2;
  const int merge = r.warps * kDecodeRows * spec.v_head_size * 4;
  return std::max(kDecodeRows * dk * 2 + ring, merge);
}

// The first ring that fits the device, else the last.
Ring decode_ring(const AttentionSpec& spec, const DeviceTraits& device) {
  const int d = std::max(spec.head_size, spec.v_head_size);
  const int deepest = d <= 64 ? 4 : d <= 192 || spec.type == kFloat32 ? 3 : 2;  // more spill
  constexpr Ring kRings[] = {{4, 4}, {4, 3}, {4, 2}, {2, 3}, {2, 2}, {1, 2}};
  for (const Ring& ring : kRings) {
    const int bytes = decode_shared_bytes(spec, ring) + kDecodeStaticBytes;
    if (ring.stages <= deepest && bytes <= device.shared_bytes_per_block) return ring;
  }
  return kRings[5];
}

class SplitDecode final : public AttentionEngine {
 public:
  const char* name() const override { return "split-decode"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    return fits_tiles(spec, is_16_bit(spec.type) ? 8 : 4, why_not) &&
           fits_shared_memory(variant(spec, device), kDecodeStaticBytes, device, why_not);
  }
  bool accepts(const AttentionProblem& problem) const override {
    return has_few_rows(problem) && all_aligned(problem);
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const bool wide = spec.type == kFloat32;
    KernelVariant out{wide ? "softmax/attention_decode_float32.cu" : "softmax/attention_decode.cu",
                      wide ? "attn_attention_decode_float32" : "attn_attention_decode",
                      softmax_definitions(spec)};
    if (wide) define(out, "ROWS", decode_rows(spec));
    const Ring ring = decode_ring(spec, device);
    define(out, "WARPS", ring.warps);
    define(out, "STAGES", ring.stages);
    out.threads = 32 * ring.warps;
    out.shared_bytes = decode_shared_bytes(spec, ring);
    return out;
  }
  size_t partial_bytes(const AttentionSpec& spec, const ShapeRange& range,
                       const DeviceTraits& device, bool batch_invariant) const override {
    int64_t blocks = kWaves * device.multiprocessors;
    if (batch_invariant) {
      const int64_t rows = std::min<int64_t>(range.query_rows, kDecodeQueries) * group_of(spec);
      const int64_t splits =
          std::max(kFewParts, device.multiprocessors / std::max<int64_t>(spec.kv_heads, 1));
      blocks = range.batch * spec.kv_heads * divide_up(rows, decode_rows(spec)) * splits;
    }
    return static_cast<size_t>(blocks) * partial_floats(spec) * 4;
  }
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits& device,
                    bool batch_invariant) const override {
    const int64_t row_tiles =
        divide_up(problem.query_rows * group_of(problem.spec), decode_rows(problem.spec));
    const int64_t of_sequence = problem.spec.kv_heads * row_tiles;
    const int64_t units = problem.batch * of_sequence;
    int64_t splits = splits_of(batch_invariant ? of_sequence : units, problem.max_total, device);
    return {units * splits, splits};
  }
  std::string summary(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Ring ring = decode_ring(spec, device);
    return cat("keys split over blocks of ", ring.warps, " warps with ", ring.stages,
               " stages, merged by the last block");
  }

 private:
  // Parts of the keys of each of `units` (sequence, key head, row tile).
  static int64_t splits_of(int64_t units, int64_t keys, const DeviceTraits& device) {
    int64_t splits = 1;
    for (int64_t waves = kWaves; waves >= 1; waves /= 2) {
      splits = std::max<int64_t>(1, waves * device.multiprocessors / std::max<int64_t>(units, 1));
      if (splits <= kFewParts && keys / splits >= kLongPart) break;
    }
    splits = std::min(splits, std::max<int64_t>(1, divide_up(keys, 64)));
    return std::min(splits, kMaxSplits);
  }
  static int64_t partial_floats(const AttentionSpec& spec) {
    return kDecodeRows * 2 + kDecodeRows * static_cast<int64_t>(spec.v_head_size);
  }
  // Blocks are equal, multiprocessors are not, and some hold two blocks: where parts stay long and
  // few enough to pay for the merge, each gets several turns (docs/measurements/cuda-h200-gqa.md).
  static constexpr int64_t kWaves = 4, kLongPart = 256, kFewParts = 16;
};

// ---- generic ------------------------------------------------------------------------------------

class Generic final : public AttentionEngine {
 public:
  const char* name() const override { return "generic"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits&,
                std::string* why_not) const override {
    if (!is_16_bit(spec.type) && spec.type != kFloat32) {
      return refuse(why_not, cat(name_of(spec.type), " is not served on CUDA"));
    }
    if (spec.head_size > 1024 || spec.v_head_size > 1024) {
      return refuse(why_not, "head sizes above 1024");
    }
    return true;
  }
  bool accepts(const AttentionProblem&) const override { return true; }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits&) const override {
    KernelVariant out{"softmax/attention_generic.cu",
                      "attn_attention_generic",
                      {softmax_definitions(spec).front()}};
    out.threads = 128;
    return out;
  }
  size_t partial_bytes(const AttentionSpec&, const ShapeRange&, const DeviceTraits&,
                       bool) const override {
    return 0;
  }
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits&, bool) const override {
    return {problem.batch * problem.spec.q_heads * problem.query_rows, 1};
  }
  std::string summary(const AttentionSpec&, const DeviceTraits&) const override {
    return "a block a query row";
  }
};

}  // namespace

std::span<const AttentionEngine* const> attention_engines() {
  static const SplitDecode decode;
  static const WgmmaPrefill wgmma;
  static const MmaPrefill prefill;
  static const Float32Prefill float32;
  static const Generic generic;
  static const AttentionEngine* const engines[] = {&decode, &wgmma, &prefill, &float32, &generic};
  return engines;
}

}  // namespace attn::cuda
