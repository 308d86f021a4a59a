// Reads matrices of open files and packs them on the way, on four lanes.
//
// Requests are taken in order, urgent ones first. All lanes work on the same request, chunk by chunk: a chunk is a
// span of one file with the whole row groups in it. There are more lanes than it takes to keep a disk busy, as some of
// them pack at any time. A request completes exactly once, whether it was read, failed or
// was cancelled by a stop; what was refused never completes.
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "emel_reader.h"

namespace emel {

constexpr uint32_t kReadLanes = EMEL_READER_LANES;
constexpr uint32_t kMostRequests = 32;
constexpr uint64_t kMostFiles = 1024;
constexpr uint64_t kMostParts = 256;  // of a request
constexpr uint64_t kDirectAlignment = 4096;

// Rows [first_row, end_row) of a part; a whole number of row groups, or up to the last row.
struct Piece {
  uint64_t part;
  uint64_t first_row;
  uint64_t end_row;
};

// What comes next of a request.
struct Cursor {
  uint64_t part;
  uint64_t row;
};

// A span of a file, and the first and last piece that lie in it (those between are whole parts).
struct Chunk {
  uint32_t file;
  uint64_t offset;
  uint64_t n_bytes;
  Cursor begin;
  Cursor end;
};

struct Request {
  enum class State : uint32_t { kFree, kQueued, kDone } state;
  uint64_t ticket;
  uint64_t order;  // of submission
  bool is_urgent;
  uint64_t n_parts;
  emel_read_part parts[kMostParts];
  Cursor next;
  uint32_t n_reading;  // chunks that lanes work on
  emel_read_done done;

  bool is_cut() const { return next.part == n_parts; }
};

// What lanes read next, in this order.
struct Ahead {
  uint32_t file[kReadLanes];
  uint64_t offset[kReadLanes];
  uint64_t n_bytes[kReadLanes];
  uint32_t n;
};

uint64_t part_row_bytes(const emel_read_part& part);
// Cuts the next chunk of at most n_bytes off a request that is not cut yet.
Chunk cut_chunk(Request* request, uint64_t n_bytes);
// Reads a chunk into staging and packs it; false with done filled in when the file failed.
bool read_chunk(const emel_reader_desc& desc, const Request& request, const Chunk& chunk, const Ahead& ahead,
                uint8_t* staging, emel_read_done* done);
// Nothing of the request is read any more; the first failure is its outcome.
void fail_rest(Request* request, const emel_read_done& done);

constexpr uint64_t staging_bytes(const emel_reader_desc& desc) { return desc.chunk_bytes + 3 * kDirectAlignment; }
emel_status check_desc(const emel_reader_desc& desc);
emel_status check_part(const emel_reader_desc& desc, const emel_read_part& part, uint64_t index);

}  // namespace emel

struct emel_reader {
  emel_reader_desc desc;  // its files are the reader's own copy
  pthread_mutex_t mutex;  // of everything below but the lanes' own staging
  pthread_cond_t work;
  pthread_cond_t completed;
  pthread_t threads[emel::kReadLanes];
  uint32_t n_threads;
  uint32_t n_lanes_left;  // that have not seen the stop
  bool is_stopping;
  uint64_t n_submitted;
  emel_read_totals totals;
  uint8_t* staging[emel::kReadLanes];
  emel::Request requests[emel::kMostRequests];
};
