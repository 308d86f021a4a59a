#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "io/reader.h"
#include "kernels/layout.h"
#include "pack/pack.h"
#include "pack/source.h"

namespace emel {
namespace {

constexpr uint64_t kLeastChunk = uint64_t{1} << 16;
constexpr uint64_t kMostChunk = uint64_t{16} << 20;
// Bytes between two parts that are read rather than skipped: norms and padding.
constexpr uint64_t kMostGap = 64 * 1024;

int64_t system_read(void*, int32_t descriptor, void* target, uint64_t n_bytes, uint64_t offset) {
  const ssize_t n_read = pread(descriptor, target, n_bytes, static_cast<off_t>(offset));
  return n_read < 0 ? -errno : n_read;
}

int32_t system_advise(void*, int32_t descriptor, uint64_t offset, uint64_t n_bytes, int32_t advice) {
#if defined(POSIX_FADV_WILLNEED)
  const int how = advice == EMEL_READ_AHEAD ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED;
  return posix_fadvise(descriptor, static_cast<off_t>(offset), static_cast<off_t>(n_bytes), how);
#else
  return 0;
#endif
}

void advise(const emel_reader_desc& desc, const emel_read_file& file, uint64_t offset, uint64_t n_bytes,
            int32_t advice) {
  const auto call = desc.calls.advise != nullptr ? desc.calls.advise : system_advise;
  // A hint: one that is not taken costs time, never a result.
  call(desc.calls.context, file.descriptor, offset, n_bytes, advice);
}

// Fills [begin, end) of a file into staging, which starts at `begin`; may read more where that is aligned.
bool read_span(const emel_reader_desc& desc, const emel_read_file& file, uint64_t begin, uint64_t needed_end,
               uint64_t end, uint8_t* staging, emel_read_done* done) {
  const auto call = desc.calls.read != nullptr ? desc.calls.read : system_read;
  const uint64_t step = file.is_direct != 0 ? kDirectAlignment : 1;
  uint64_t at = begin;
  uint64_t stuck_at = UINT64_MAX;
  while (at < needed_end) {
    const uint64_t from = at / step * step;  // a direct read that ended off the alignment is at the file's end
    const int64_t n_read = call(desc.calls.context, file.descriptor, staging + (from - begin), end - from, from);
    if (n_read == -EINTR) continue;
    if (n_read < 0) {
      done->status = EMEL_READ_FAILED;
      done->error = static_cast<int32_t>(-n_read);
      done->offset = from;
      return false;
    }
    const uint64_t reached = from + static_cast<uint64_t>(n_read);
    if (n_read == 0 || reached > end || (reached <= at && stuck_at == at)) {
      done->status = EMEL_READ_ENDED;
      done->offset = at;
      return false;
    }
    if (reached <= at) stuck_at = at;
    if (reached > at) at = reached;
  }
  return true;
}

void pack_piece(const emel_read_part& part, const Piece& piece, const uint8_t* source) {
  emel_pack_job job{};
  job.src = source;
  job.rows = piece.end_row - piece.first_row;
  job.cols = part.cols;
  job.type = part.type;
  job.dst = static_cast<uint8_t*>(part.dst) + piece.first_row / kRowsPerGroup * group_bytes(part.type, part.cols);
  pack_matrix(job);
}

}  // namespace

uint64_t part_row_bytes(const emel_read_part& part) {
  const SourceBlock block = source_block(part.type);
  return part.cols / block.elements * block.bytes;
}

Chunk cut_chunk(Request* request, uint64_t n_bytes) {
  Chunk chunk{};
  chunk.begin = request->next;
  Cursor at = request->next;
  uint64_t end = 0;
  while (at.part < request->n_parts) {
    const emel_read_part& part = request->parts[at.part];
    const uint64_t row_bytes = part_row_bytes(part);
    const uint64_t first = part.offset + at.row * row_bytes;
    if (end == 0) {
      chunk.file = part.file;
      chunk.offset = end = first;
    } else if (part.file != chunk.file || first < end || first - end > kMostGap || first - chunk.offset > n_bytes) {
      break;
    }
    uint64_t n_rows = (n_bytes - (first - chunk.offset)) / row_bytes;
    if (n_rows >= part.rows - at.row) {
      end = part.offset + part.rows * row_bytes;
      at = {at.part + 1, 0};
      continue;
    }
    n_rows = n_rows / kRowsPerGroup * kRowsPerGroup;
    if (n_rows == 0 && first == chunk.offset) n_rows = kRowsPerGroup;  // submit saw to it that a group fits
    if (n_rows != 0) end = first + n_rows * row_bytes;
    at.row += n_rows;
    break;
  }
  chunk.n_bytes = end - chunk.offset;
  chunk.end = at;
  request->next = at;
  return chunk;
}

bool read_chunk(const emel_reader_desc& desc, const Request& request, const Chunk& chunk, const Ahead& ahead,
                uint8_t* staging, emel_read_done* done) {
  // Direct reads need an aligned buffer; staging has room for the difference.
  const emel_read_file& file = desc.files[chunk.file];
  staging += (kDirectAlignment - reinterpret_cast<uintptr_t>(staging) % kDirectAlignment) % kDirectAlignment;
  const uint64_t step = file.is_direct != 0 ? kDirectAlignment : 1;
  const uint64_t begin = chunk.offset / step * step;
  const uint64_t needed_end = chunk.offset + chunk.n_bytes;
  const uint64_t end = (needed_end + step - 1) / step * step;
  // While this chunk is read, the kernel fetches what the lanes read next.
  for (uint32_t i = 0; i < ahead.n; ++i) {
    const emel_read_file& next = desc.files[ahead.file[i]];
    if (next.is_direct == 0) advise(desc, next, ahead.offset[i], ahead.n_bytes[i], EMEL_READ_AHEAD);
  }
  done->file = chunk.file;
  const bool is_read = read_span(desc, file, begin, needed_end, end, staging, done);
  if (is_read) {
    for (uint64_t p = chunk.begin.part; p <= chunk.end.part && p < request.n_parts; ++p) {
      const emel_read_part& part = request.parts[p];
      const Piece piece{p, p == chunk.begin.part ? chunk.begin.row : 0,
                        p == chunk.end.part ? chunk.end.row : part.rows};
      if (piece.first_row >= piece.end_row) continue;
      pack_piece(part, piece, staging + (part.offset + piece.first_row * part_row_bytes(part) - begin));
    }
  }
  if (file.is_direct == 0 && desc.keeps_cache == 0) {
    advise(desc, file, chunk.offset, chunk.n_bytes, EMEL_READ_BEHIND);
  }
  return is_read;
}

void fail_rest(Request* request, const emel_read_done& done) {
  if (request->done.status == EMEL_READ_OK) {
    request->done.status = done.status;
    request->done.error = done.error;
    request->done.offset = done.offset;
    request->done.file = done.file;
  }
  request->next = {request->n_parts, 0};
}

emel_status check_desc(const emel_reader_desc& desc) {
  if (desc.chunk_bytes < kLeastChunk || desc.chunk_bytes > kMostChunk) {
    return fail(EMEL_INVALID_ARGUMENT, "read: a chunk of %llu bytes; allowed are %llu to %llu",
                static_cast<unsigned long long>(desc.chunk_bytes), static_cast<unsigned long long>(kLeastChunk),
                static_cast<unsigned long long>(kMostChunk));
  }
  if (desc.files == nullptr || desc.n_files == 0 || desc.n_files > kMostFiles) {
    return fail(EMEL_INVALID_ARGUMENT, "read: no files, or %llu; allowed are 1 to %llu",
                static_cast<unsigned long long>(desc.n_files), static_cast<unsigned long long>(kMostFiles));
  }
  return EMEL_OK;
}

emel_status check_part(const emel_reader_desc& desc, const emel_read_part& part, uint64_t index) {
  const emel_status status = check_pack_target(part.type, part.rows, part.cols, part.dst, part.dst_bytes, index);
  if (status != EMEL_OK) return status;
  const uint64_t row_bytes = part_row_bytes(part);
  if (row_bytes * kRowsPerGroup > desc.chunk_bytes) {
    return fail(EMEL_OUT_OF_BOUNDS, "read: 16 rows of part %llu have %llu bytes, a chunk holds %llu",
                static_cast<unsigned long long>(index), static_cast<unsigned long long>(row_bytes * kRowsPerGroup),
                static_cast<unsigned long long>(desc.chunk_bytes));
  }
  if (part.file >= desc.n_files) {
    return fail(EMEL_OUT_OF_BOUNDS, "read: part %llu lies in file %u of %llu", static_cast<unsigned long long>(index),
                part.file, static_cast<unsigned long long>(desc.n_files));
  }
  const uint64_t file_bytes = desc.files[part.file].n_bytes;
  if (part.offset > file_bytes || part.rows * row_bytes > file_bytes - part.offset) {
    return fail(EMEL_OUT_OF_BOUNDS, "read: part %llu ends beyond the file's %llu bytes",
                static_cast<unsigned long long>(index), static_cast<unsigned long long>(file_bytes));
  }
  return EMEL_OK;
}

}  // namespace emel
