// GGUF rows into the packed 16-row layout (kernels/layout.h), and GGUF values to float32.
#include <string.h>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/half.h"
#include "kernels/layout.h"
#include "pack/pack.h"
#include "pack/planes.h"
#include "pack/rows.h"
#include "pack/source.h"
#include "pool/pool.h"

namespace emel {
namespace {

constexpr uint64_t kMaxExtent = uint64_t{1} << 46;

emel_status check_shape(uint32_t type, uint64_t rows, uint64_t cols, SourceBlock* block) {
  *block = source_block(type);
  if (block->elements == 0) return fail(EMEL_UNSUPPORTED, "pack: tensor type %u has no packed form", type);
  if (rows == 0 || cols == 0 || rows > kMaxExtent / cols / 8) {
    return fail(EMEL_INVALID_ARGUMENT, "pack: shape (%llu, %llu) is empty or too large",
                static_cast<unsigned long long>(rows), static_cast<unsigned long long>(cols));
  }
  if (cols % block->elements != 0) {
    return fail(EMEL_INVALID_ARGUMENT, "pack: %llu columns are not a multiple of the block of %llu",
                static_cast<unsigned long long>(cols), static_cast<unsigned long long>(block->elements));
  }
  return EMEL_OK;
}

uint64_t n_groups(uint64_t rows) { return (rows + kRowsPerGroup - 1) / kRowsPerGroup; }

void pack_group(const emel_pack_job& job, uint64_t index) {
  const SourceBlock block = source_block(job.type);
  const size_t n_group_bytes = group_bytes(job.type, job.cols);
  const size_t row_bytes = job.cols / block.elements * block.bytes;
  uint8_t* group = static_cast<uint8_t*>(job.dst) + index * n_group_bytes;
  const uint64_t first = index * kRowsPerGroup;
  const size_t n_rows = job.rows - first < kRowsPerGroup ? job.rows - first : kRowsPerGroup;
  const uint8_t* rows = static_cast<const uint8_t*>(job.src) + first * row_bytes;
  pack_rows(job.type, rows, n_rows, row_bytes, job.cols, group);
}

struct PackRun {
  const emel_pack_job* jobs;
  uint64_t n_jobs;
};

// Each lane takes its contiguous share of the groups of every job.
void pack_lane(void* context, const Lane& lane) {
  const auto* run = static_cast<const PackRun*>(context);
  for (uint64_t j = 0; j < run->n_jobs; ++j) {
    const uint64_t groups = n_groups(run->jobs[j].rows);
    const uint64_t end = groups * (lane.index + 1) / lane.n_lanes;
    for (uint64_t g = groups * lane.index / lane.n_lanes; g < end; ++g) pack_group(run->jobs[j], g);
  }
}

emel_status check_job(const emel_pack_job& job, uint64_t index) {
  SourceBlock block{};
  const emel_status status = check_shape(job.type, job.rows, job.cols, &block);
  if (status != EMEL_OK) return status;
  if (job.src == nullptr || job.src_bytes != job.rows * (job.cols / block.elements * block.bytes)) {
    return fail(EMEL_OUT_OF_BOUNDS, "pack: job %llu has %llu source bytes, its shape needs %llu",
                static_cast<unsigned long long>(index), static_cast<unsigned long long>(job.src_bytes),
                static_cast<unsigned long long>(job.rows * (job.cols / block.elements * block.bytes)));
  }
  return check_pack_target(job.type, job.rows, job.cols, job.dst, job.dst_bytes, index);
}

float float_value(uint32_t type, const uint8_t* p) {
  float value;
  if (type == EMEL_TYPE_F32) {
    memcpy(&value, p, 4);
    return value;
  }
  uint16_t half;
  memcpy(&half, p, 2);
  if (type == EMEL_TYPE_F16) return half_to_float(half);
  const uint32_t wide = static_cast<uint32_t>(half) << 16;
  memcpy(&value, &wide, 4);
  return value;
}

}  // namespace

void pack_matrix(const emel_pack_job& job) {
  const uint64_t groups = n_groups(job.rows);
  for (uint64_t g = 0; g < groups; ++g) pack_group(job, g);
}

emel_status check_pack_target(uint32_t type, uint64_t rows, uint64_t cols, const void* dst, uint64_t dst_bytes,
                              uint64_t index) {
  SourceBlock block{};
  const emel_status status = check_shape(type, rows, cols, &block);
  if (status != EMEL_OK) return status;
  const uint64_t needed = n_groups(rows) * group_bytes(type, cols);
  if (dst == nullptr || dst_bytes < needed || reinterpret_cast<uintptr_t>(dst) % kCacheLine != 0) {
    return fail(EMEL_OUT_OF_BOUNDS, "pack: job %llu needs %llu bytes aligned to %zu at its destination",
                static_cast<unsigned long long>(index), static_cast<unsigned long long>(needed), kCacheLine);
  }
  return EMEL_OK;
}

void unpack_row(uint32_t type, const uint8_t* packed, size_t cols, size_t row, float* out) {
  const uint8_t* group = packed + row / kRowsPerGroup * group_bytes(type, cols);
  const size_t lane = row % kRowsPerGroup;
  if (is_float_type(type)) {
    const size_t n_bytes = source_block(type).bytes;
    for (size_t k = 0; k < cols; ++k) out[k] = float_value(type, group + (k * kRowsPerGroup + lane) * n_bytes);
    return;
  }
  for (size_t b = 0; b < cols / kBlock; ++b) {
    BlockValues values{};
    read_planes(type, group, b, lane, &values);
    block_floats(type, values, out + b * kBlock);
  }
}

}  // namespace emel

emel_status emel_pack_size(uint32_t type, uint64_t rows, uint64_t cols, uint64_t* n_bytes) {
  if (n_bytes == nullptr) return emel::fail(EMEL_INVALID_ARGUMENT, "pack: n_bytes is NULL");
  emel::SourceBlock block{};
  const emel_status status = emel::check_shape(type, rows, cols, &block);
  if (status != EMEL_OK) return status;
  *n_bytes = emel::n_groups(rows) * emel::group_bytes(type, cols);
  return EMEL_OK;
}

emel_status emel_pack(emel_pool* pool, const emel_pack_job* jobs, uint64_t n_jobs) {
  if (pool == nullptr || (jobs == nullptr && n_jobs != 0)) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "pack: pool or jobs is NULL");
  }
  for (uint64_t i = 0; i < n_jobs; ++i) {
    const emel_status status = emel::check_job(jobs[i], i);
    if (status != EMEL_OK) return status;
  }
  emel::PackRun run{jobs, n_jobs};
  pool->run(emel::pack_lane, &run);
  return EMEL_OK;
}

emel_status emel_dequantize(uint32_t type, const void* src, uint64_t src_bytes, float* dst, uint64_t n) {
  emel::SourceBlock block{};
  if (n == 0) return EMEL_OK;
  const emel_status status = emel::check_shape(type, 1, n, &block);
  if (status != EMEL_OK) return status;
  if (src == nullptr || dst == nullptr || src_bytes != n / block.elements * block.bytes) {
    return emel::fail(EMEL_OUT_OF_BOUNDS, "dequantize: %llu source bytes for %llu values",
                      static_cast<unsigned long long>(src_bytes), static_cast<unsigned long long>(n));
  }
  const emel::FloatEnvironment environment;
  const auto* bytes = static_cast<const uint8_t*>(src);
  if (emel::is_float_type(type)) {
    for (uint64_t i = 0; i < n; ++i) dst[i] = emel::float_value(type, bytes + i * block.bytes);
  } else {
    for (uint64_t b = 0; b < n / emel::kBlock; ++b) {
      emel::BlockValues values{};
      emel::read_block(type, bytes, b, &values);
      emel::block_floats(type, values, dst + b * emel::kBlock);
    }
  }
  return EMEL_OK;
}
