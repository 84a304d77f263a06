// Linear attention from token to token, the state in registers.
//
// A block of four warps carries some columns of one state. A few lanes share a column: each holds
// some of its rows, in pieces of four that alternate between the lanes, so that the lanes of a
// column read shared memory side by side. Tokens come in tiles of TOKENS: while one is worked on,
// the next one's rows are on their way to shared memory (cp.async). Between the tiles all threads
// widen the rows to float32 and turn decays into what the tile needs.
//
// S = diag(c) U, as in src/cpu/linear_attention_recurrent.h: decays change c alone, from a sum of
// decays in double; U takes them in when the sum leaves its range.
//
// Macros: ATTN_TYPE, HEAD_SIZE, OUTPUTS (query heads of a state), DECAY_FORM, DELTA, TOKENS.
#include "linear/state.h"

namespace attnk {

constexpr int kType = ATTN_TYPE;
constexpr int kThreads = 128;
constexpr int kDepth = HEAD_SIZE, kOutputs = OUTPUTS, kTokens = TOKENS;
constexpr bool kDelta = DELTA != 0, kKeyed = DECAY_FORM == kDecayPerKey;
constexpr bool kHeaded = DECAY_FORM == kDecayPerHead;

constexpr int lanes_of(int depth) {
  return depth <= 32 ? 1 : depth <= 64 ? 2 : depth <= 128 ? 4 : 8;
}
constexpr int kLanes = lanes_of(kDepth);
constexpr int kPieces = (kDepth + 4 * kLanes - 1) / (4 * kLanes);  // of four rows, each lane's
constexpr int kPadded = kPieces * kLanes * 4;
constexpr int kColumns = kThreads / kLanes;

constexpr int kElement = ElementBytes<kType>::value;
constexpr int kInPiece = 16 / kElement;        // elements of a 16-byte copy
constexpr int kRowPieces = kDepth / kInPiece;  // the engine asks for whole pieces
constexpr int kValuePieces = kColumns / kInPiece;
constexpr float kLargestSum = 8.0f, kLargestReach = 48.0f;

// Dynamic shared memory: float32 rows of a tile, then the raw rows of the next one.
struct Shared {
  float* key;      // (kTokens, kPadded): what reads
  float* write;    // likewise, what writes; the same rows unless kKeyed
  float* query;    // (kTokens, kOutputs, kPadded)
  float* value;    // (kTokens, kColumns)
  float* rescale;  // (kTokens, kPadded), kKeyed
  u8* raw_key;     // (kTokens, kDepth)
  u8* raw_query;   // (kTokens, kOutputs, kDepth)
  u8* raw_value;   // (kTokens, kColumns)
  u8* raw_decay;   // (kTokens, kDepth), kKeyed
};

ATTN_DEVICE Shared shared_of(u8* base) {
  Shared s;
  float* at = (float*)base;
  s.key = at;
  at += kTokens * kPadded;
  s.write = s.key;
  s.rescale = at;
  if (kKeyed) {
    s.write = at;
    at += kTokens * kPadded;
    s.rescale = at;
    at += kTokens * kPadded;
  }
  s.query = at;
  at += kTokens * kOutputs * kPadded;
  s.value = at;
  at += kTokens * kColumns;
  u8* raw = (u8*)at;
  s.raw_key = raw;
  raw += kTokens * kDepth * kElement;
  s.raw_query = raw;
  raw += kTokens * kOutputs * kDepth * kElement;
  s.raw_value = raw;
  raw += kTokens * kColumns * kElement;
  s.raw_decay = raw;
  return s;
}

ATTN_DEVICE void copy_piece(u8* to, const void* from) {
  const u32 at = (u32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

ATTN_DEVICE const u8* row_at(const View& v, i64 b, i64 head, i64 row) {
  return (const u8*)v.data + offset_of(v, b, head, row) * kElement;
}

// Starts the copies of tokens [first, first + count).
ATTN_DEVICE void fetch_tile(const LinearParams& p, const StatePlace& at, const Shared& s, i64 first,
                            int count) {
  for (int n = threadIdx.x; n < count * kRowPieces; n += kThreads) {
    const int t = n / kRowPieces, piece = n % kRowPieces;
    copy_piece(s.raw_key + (t * kRowPieces + piece) * 16,
               row_at(p.key, at.batch, at.key_head, first + t) + piece * 16);
    if constexpr (kKeyed) {
      copy_piece(s.raw_decay + (t * kRowPieces + piece) * 16,
                 row_at(p.decay, at.batch, at.head, first + t) + piece * 16);
    }
#pragma unroll
    for (int o = 0; o < kOutputs; o++) {
      copy_piece(s.raw_query + ((t * kOutputs + o) * kRowPieces + piece) * 16,
                 row_at(p.query, at.batch, query_head_of(p, at.head, o), first + t) + piece * 16);
    }
  }
  for (int n = threadIdx.x; n < count * kValuePieces; n += kThreads) {
    const int t = n / kValuePieces, piece = n % kValuePieces;
    const i64 column = at.column + piece * kInPiece;
    if (column >= p.v_head_size) continue;
    copy_piece(s.raw_value + (t * kValuePieces + piece) * 16,
               row_at(p.value, at.batch, at.head, first + t) + column * kElement);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Raw rows of `elements` (a multiple of a piece) to float32 rows `padded` apart.
ATTN_DEVICE void widen(const u8* raw, float* to, int rows, int elements, int padded) {
  const int pieces = elements / kInPiece;
  for (int n = threadIdx.x; n < rows * pieces; n += kThreads) {
    const u8* from = raw + n * 16;
    float* out = to + n / pieces * padded + n % pieces * kInPiece;
#pragma unroll
    for (int e = 0; e < kInPiece; e++) out[e] = load_element<kType>(from, e);
  }
}

// e^sum: what float32 leaves of the sum is a factor of 1 + rest.
ATTN_DEVICE float exp_of_sum(double sum) {
  const float high = (float)sum;
  const float e = expf(high), rest = (float)(sum - (double)high);
  return isfinite(rest) ? fmaf(e, rest, e) : e;
}

// The numbers of a tile's tokens.
struct TokenNumbers {
  float beta[kTokens], read[kTokens], write[kTokens], rescale[kTokens];
  u32 rescales;  // bit t: U is multiplied before token t
};

// kHeaded, by one warp: `decay` is lane t's. `sum` begins where the last tile ended.
ATTN_DEVICE void scan_decays(TokenNumbers& out, float decay, int count, double& sum) {
  const int lane = threadIdx.x;
  const bool start = !(fabs(sum) <= (double)kLargestSum);
  double own = lane < count ? (double)decay : 0.0;
#pragma unroll
  for (int h = 1; h < kTokens; h <<= 1) {
    const double other = __shfl_up_sync(~0u, own, h);
    if (lane >= h) own += other;
  }
  double total = own + (start ? 0.0 : sum);
  bool rescales = start && lane == 0;
  double own_before = rescales ? sum : 0.0;
  if (__any_sync(~0u, lane < count && !(fabs(total) <= (double)kLargestReach))) {
    // Somewhere the sum goes too far: token by token.
    double running = sum;
    rescales = false;
    for (int t = 0; t < count; t++) {
      running += (double)__shfl_sync(~0u, decay, t);
      const bool leaves = !(fabs(running) <= (double)kLargestSum);
      if (lane == t) {
        rescales = leaves;
        own_before = running;
        total = leaves ? 0.0 : running;
      }
      if (leaves) running = 0;
    }
  }
  const float keep = exp_of_sum(total);
  if (lane < count) {
    out.read[lane] = keep;
    out.write[lane] = 1.0f / keep;
    out.rescale[lane] = exp_of_sum(own_before);
  }
  const u32 mask = __ballot_sync(~0u, rescales);
  if (lane == 0) out.rescales = mask;
  sum = __shfl_sync(~0u, total, count - 1);
}

// kKeyed: the thread's row of every token. `sum` begins where the last tile ended.
ATTN_DEVICE void scale_row(const Shared& s, TokenNumbers& numbers, const LinearParams& p, int row,
                           const DecayConstants& constants, int count, double& sum) {
  for (int t = 0; t < count; t++) {
    const float raw = load_element<kType>(s.raw_decay, t * kDepth + row);
    sum += (double)decay_of<kType>(p, raw, constants);
    const bool leaves = !(fabs(sum) <= (double)kLargestSum);
    const float e = exp_of_sum(sum);
    const float keep = leaves ? 1.0f : e;
    s.rescale[t * kPadded + row] = leaves ? e : 1.0f;
    if (leaves) {
      atomicOr(&numbers.rescales, 1u << t);
      sum = 0;
    }
    const float k = s.key[t * kPadded + row];
    s.key[t * kPadded + row] = k * keep;
    s.write[t * kPadded + row] = k / keep;
#pragma unroll
    for (int o = 0; o < kOutputs; o++) s.query[(t * kOutputs + o) * kPadded + row] *= keep;
  }
}

// The sum of a row's products over the lanes of a column.
ATTN_DEVICE float sum_of_column(const float4& parts) {
  float sum = (parts.x + parts.y) + (parts.z + parts.w);
#pragma unroll
  for (int h = kLanes / 2; h; h >>= 1) sum += __shfl_xor_sync(~0u, sum, h);
  return sum;
}

ATTN_DEVICE void add_products(float4& sum, const float4& a, const float4& b) {
  sum.x = fmaf(a.x, b.x, sum.x);
  sum.y = fmaf(a.y, b.y, sum.y);
  sum.z = fmaf(a.z, b.z, sum.z);
  sum.w = fmaf(a.w, b.w, sum.w);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attn_linear_recurrent(const __grid_constant__ LinearParams p) {
  extern __shared__ __align__(16) u8 memory[];
  __shared__ TokenNumbers numbers;
  __shared__ float kept[kPadded];
  const Shared s = shared_of(memory);
  const StatePlace at = place_of(p, kColumns);
  const int tid = threadIdx.x, lane = tid & 31;
  const int part = lane % kLanes;  // of the column's rows
  const int own_column = tid / kLanes;
  const i64 column = at.column + own_column;
  const bool owns = column < p.v_head_size;
  wait_for_previous();
  if (p.faults->latch != 0) {
    write_poisoned<kType>(p, at, kColumns);
    return;
  }

  const int tiles = (int)((p.tokens + kTokens - 1) / kTokens);
  const auto tokens_of = [&](int tile) {
    return (int)min_of((i64)kTokens, p.tokens - (i64)tile * kTokens);
  };
  // A gate of one number a token, raw; one thread a token.
  const auto gate_at = [&](const View& v, int tile) {
    const i64 token = (i64)tile * kTokens + tid;
    if (tid >= kTokens || token >= p.tokens) return 0.0f;
    return load_element<kType>(v.data, offset_of(v, at.batch, at.head, token));
  };
  float next_beta = 0, next_decay = 0;
  if (tiles > 0) {
    fetch_tile(p, at, s, 0, tokens_of(0));
    if (kDelta) next_beta = gate_at(p.beta, 0);
    if (kHeaded) next_decay = gate_at(p.decay, 0);
  }

  float4 u[kPieces];
  const auto row_of = [&](int piece, int e) { return (piece * kLanes + part) * 4 + e; };
  const auto each_row = [&](auto body) {
#pragma unroll
    for (int m = 0; m < kPieces; m++) {
      body(row_of(m, 0), u[m].x);
      body(row_of(m, 1), u[m].y);
      body(row_of(m, 2), u[m].z);
      body(row_of(m, 3), u[m].w);
    }
  };
  each_row([&](int row, float& value) {
    const bool reads = p.has_past && owns && row < kDepth;
    value = reads ? load_state(p.past.data, offset_of(p.past, at.batch, at.head, row) + column,
                               p.state_type)
                  : 0.0f;
  });

  constexpr int kOwnRows = (kPadded + kThreads - 1) / kThreads;
  double sums[kKeyed ? kOwnRows : 1] = {};
  DecayConstants constants[kKeyed ? kOwnRows : 1];
  if constexpr (kKeyed) {
#pragma unroll
    for (int r = 0; r < kOwnRows; r++) {
      const int row = tid + r * kThreads;
      constants[r] = decay_constants<kType>(p, at.head, row < kDepth ? row : 0);
    }
  } else {
    constants[0] = decay_constants<kType>(p, at.head, 0);
  }
  for (int n = tid; n < kPadded; n += kThreads) kept[n] = 1.0f;
  // Rows behind HEAD_SIZE stay zero.
  constexpr int kBehind = kPadded - kDepth;
  if constexpr (kBehind != 0) {
    for (int n = tid; n < kTokens * kBehind; n += kThreads) {
      const int t = n / max_of(kBehind, 1), row = kDepth + n % max_of(kBehind, 1);
      s.key[t * kPadded + row] = s.write[t * kPadded + row] = 0.0f;
      if (kKeyed) s.rescale[t * kPadded + row] = 1.0f;
      for (int o = 0; o < kOutputs; o++) s.query[(t * kOutputs + o) * kPadded + row] = 0.0f;
    }
  }

#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    const int count = tokens_of(tile);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();  // the raw rows are there, the widened ones are done with
    if (kKeyed && tid == 0) numbers.rescales = 0;
    widen(s.raw_key, s.key, count, kDepth, kPadded);
    widen(s.raw_query, s.query, count * kOutputs, kDepth, kPadded);
    widen(s.raw_value, s.value, count, kColumns, kColumns);
    if (kDelta && tid < count) numbers.beta[tid] = beta_of<kType>(p, next_beta);
    if (kHeaded && tid < 32) {
      scan_decays(numbers, decay_of<kType>(p, next_decay, constants[0]), count, sums[0]);
    }
    if constexpr (kKeyed) {
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kOwnRows; r++) {
        const int row = tid + r * kThreads;
        if (row < kDepth) scale_row(s, numbers, p, row, constants[r], count, sums[r]);
      }
    }
    __syncthreads();
    if (tile + 1 < tiles) {
      fetch_tile(p, at, s, (i64)(tile + 1) * kTokens, tokens_of(tile + 1));
      if (kDelta) next_beta = gate_at(p.beta, tile + 1);
      if (kHeaded) next_decay = gate_at(p.decay, tile + 1);
    }

    const u32 rescales = numbers.rescales;
#pragma unroll 1
    for (int t = 0; t < count; t++) {
      const float4* key = (const float4*)(s.key + t * kPadded) + part;
      float4 k[kPieces];
#pragma unroll
      for (int m = 0; m < kPieces; m++) k[m] = key[m * kLanes];
      if (DECAY_FORM != kDecayNone && (rescales >> t & 1)) {
        const float4* factor = (const float4*)(s.rescale + t * kPadded) + part;
        const float one = kHeaded ? numbers.rescale[t] : 1.0f;
#pragma unroll
        for (int m = 0; m < kPieces; m++) {
          const float4 f = kKeyed ? factor[m * kLanes] : make_float4(one, one, one, one);
          u[m] = make_float4(u[m].x * f.x, u[m].y * f.y, u[m].z * f.z, u[m].w * f.w);
        }
      }
      const float read = kHeaded ? numbers.read[t] : 1.0f;
      float change = s.value[t * kColumns + own_column];
      if constexpr (kDelta) {
        float4 held = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int m = 0; m < kPieces; m++) add_products(held, k[m], u[m]);
        change = numbers.beta[t] * fmaf(-read, sum_of_column(held), change);
      }
      const float written = kHeaded ? change * numbers.write[t] : change;
      const float4* write = (const float4*)(s.write + t * kPadded) + part;
#pragma unroll
      for (int m = 0; m < kPieces; m++) {
        const float4 w = kKeyed ? write[m * kLanes] : k[m];
        u[m].x = fmaf(w.x, written, u[m].x);
        u[m].y = fmaf(w.y, written, u[m].y);
        u[m].z = fmaf(w.z, written, u[m].z);
        u[m].w = fmaf(w.w, written, u[m].w);
      }
#pragma unroll
      for (int o = 0; o < kOutputs; o++) {
        const float4* query = (const float4*)(s.query + (t * kOutputs + o) * kPadded) + part;
        float4 seen = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int m = 0; m < kPieces; m++) add_products(seen, query[m * kLanes], u[m]);
        const float out = p.scale * read * sum_of_column(seen);
        if (part == 0 && owns) {
          const i64 row =
              offset_of(p.output, at.batch, at.head * kOutputs + o, (i64)tile * kTokens + t);
          store_element<kType>(p.output.data, row + column, out);
        }
      }
    }
  }

  if (!p.has_present) return;
  if constexpr (kKeyed) {
#pragma unroll
    for (int r = 0; r < kOwnRows; r++) {
      const int row = tid + r * kThreads;
      if (row < kDepth) kept[row] = exp_of_sum(sums[r]);
    }
  } else if (kHeaded && tid == 0) {
    kept[0] = exp_of_sum(sums[0]);
  }
  __syncthreads();
  each_row([&](int row, float& value) {
    if (!owns || row >= kDepth) return;
    const float keep = kHeaded ? kept[0] : kept[row];
    store_state(p.present.data, offset_of(p.present, at.batch, at.head, row) + column, p.state_type,
                keep * value);
  });
}

}  // namespace attnk
