#include "cuda/host_lengths.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/params.h"
#include "core/lengths.h"
#include "cuda/device_read.h"

namespace attn::cuda {
namespace {

void check_all(const Lengths& lengths) {
  std::vector<RowLengths> rows(static_cast<size_t>(lengths.batch));
  resolve_lengths(lengths, rows);
}

// Whether the host can read all that it would hold the lengths against.
bool is_readable(const LengthSpec& spec) {
  switch (spec.rule) {
    case LengthRule::kGroupQuery:
    case LengthRule::kCumulative:
      return spec.values == Placement::kHost && spec.bound == Placement::kHost;
    case LengthRule::kValid:
      return spec.values == Placement::kHost;
    default:
      return false;
  }
}

// The mask's last query row of every batch row and head, which `mask` then names.
std::vector<std::byte> read_mask(const Driver& driver, LengthMask& mask, int64_t batch,
                                 CUstream stream) {
  if (mask.columns == 0) return {};
  const Reach reach = Reach().add(mask.columns, mask.column);
  const int64_t size = size_of(mask.type), row_bytes = reach.size() * size;
  const int64_t batches = mask.batch == 0 ? 1 : batch, heads = mask.head == 0 ? 1 : mask.heads;
  std::vector<std::byte> out(static_cast<size_t>(batches * heads * row_bytes));
  const auto* source = static_cast<const std::byte*>(mask.data);
  for (int64_t i = 0; i < batches * heads; ++i) {
    const int64_t at = i / heads * mask.batch + i % heads * mask.head + mask.last_row * mask.row;
    read_device(driver, out.data() + i * row_bytes, source + (at + reach.low) * size, row_bytes,
                stream);
  }
  mask.data = out.data() - reach.low * size;
  if (mask.batch != 0) mask.batch = heads * reach.size();
  if (mask.head != 0) mask.head = reach.size();
  mask.row = 0;
  return out;
}

}  // namespace

void check_host_lengths(const Lengths& lengths) {
  if (lengths.spec.rule == LengthRule::kGroupQuery && lengths.spec.values == Placement::kHost &&
      lengths.spec.bound != Placement::kHost) {
    check_without_bound(lengths);  // the device checks the rest
    return;
  }
  if (!is_readable(lengths.spec)) return;  // the device checks them
  Lengths known = lengths;
  if (known.positions != nullptr) known.table_rows = -1;  // positions are in device memory
  // Row by row, for nothing is allocated where all is well.
  RowLengths row;
  for (int64_t b = 0; b < lengths.batch; ++b) {
    if (resolve_row(known, b, row) != 0) check_all(known);
  }
}

void check_device_lengths(const CudaContext& context, const Lengths& lengths, CUstream stream) {
  if (lengths.spec.rule == LengthRule::kUniform || lengths.batch == 0) return;
  const Driver& driver = context.driver;
  const int64_t batch = lengths.batch;
  Lengths known = lengths;
  DeviceCopy<int32_t> values, keys, bound;
  DeviceCopy<int64_t> positions, valid;
  std::vector<std::byte> mask;
  const bool values_there = lengths.spec.values == Placement::kDevice;
  const bool bound_there = lengths.spec.bound == Placement::kDevice;
  switch (lengths.spec.rule) {
    case LengthRule::kValid:
      if (!values_there) break;
      valid = {driver, lengths.valid, Reach().add(batch, lengths.valid_stride), stream};
      known.valid = valid.first();
      break;
    case LengthRule::kMaskEnd:
      mask = read_mask(driver, known.mask, batch, stream);
      break;
    case LengthRule::kCumulative:
      if (values_there) {
        values = {driver, lengths.values, Reach().add(batch + 1, lengths.value_stride), stream};
        known.values = values.first();
      }
      if (bound_there) {
        keys = {driver, lengths.key_values, Reach().add(batch + 1, lengths.key_value_stride),
                stream};
        known.key_values = keys.first();
      }
      break;
    default:
      if (values_there) {
        values = {driver, lengths.values, Reach().add(batch, lengths.value_stride), stream};
        known.values = values.first();
      }
      if (bound_there) {
        bound = {driver, lengths.bound, Reach(), stream};
        known.bound = bound.first();
      }
      if (lengths.positions != nullptr && lengths.query_rows > 0) {
        const Reach reach = Reach()
                                .add(batch, lengths.position_batch)
                                .add(lengths.query_rows, lengths.position_row);
        positions = {driver, lengths.positions, reach, stream};
        known.positions = positions.first();
      }
  }
  check(driver, driver.StreamSynchronize(stream), "cuStreamSynchronize");
  check_all(known);
}

namespace {

// Carries `count` values, value(i) being the i-th.
template <class Value>
void store(const Driver& driver, const LoadedKernel& kernel, int64_t count, Value value,
           CUdeviceptr out, CUstream stream) {
  attnk::StoreLengthsParams params;
  for (int64_t first = 0; first < count; first += attnk::kStoredLengths) {
    params.out = reinterpret_cast<attnk::i32*>(out) + first;
    params.count = std::min<int64_t>(attnk::kStoredLengths, count - first);
    for (int64_t i = 0; i < params.count; ++i) params.values[i] = value(first + i);
    void* arguments[] = {&params};
    launch_kernel(driver, kernel, 1, attnk::kStoredLengths, stream, arguments, false);
  }
}

}  // namespace

void store_lengths(const Driver& driver, const LoadedKernel& kernel, Lengths& lengths,
                   CUdeviceptr out, CUstream stream) {
  const auto* stored = reinterpret_cast<const int32_t*>(out);
  const bool packed = lengths.spec.rule == LengthRule::kCumulative;
  const int64_t count = lengths.batch + packed;
  if (lengths.spec.rule == LengthRule::kValid) {
    store(
        driver, kernel, count,
        [&](int64_t i) { return static_cast<int32_t>(lengths.valid[i * lengths.valid_stride]); },
        out, stream);
    lengths.valid = nullptr;
    lengths.values = stored;
    lengths.value_stride = lengths.valid_stride = 1;
    return;
  }
  if (lengths.spec.values == Placement::kHost) {
    store(
        driver, kernel, count, [&](int64_t i) { return lengths.values[i * lengths.value_stride]; },
        out, stream);
    lengths.values = stored;
    lengths.value_stride = 1;
  }
  if (packed && lengths.spec.bound == Placement::kHost) {
    store(
        driver, kernel, count,
        [&](int64_t i) { return lengths.key_values[i * lengths.key_value_stride]; },
        out + static_cast<size_t>(count) * sizeof(int32_t), stream);
    lengths.key_values = stored + count;
    lengths.key_value_stride = 1;
  }
}

}  // namespace attn::cuda
