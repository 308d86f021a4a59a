/* EMEL's C ABI, reading weights: matrices of open files are read chunk by chunk and packed on the way, all at once over a
 * pool's lanes, or one request after the other by four lanes of their own.
 *
 * Nothing but the matrices' own destinations is written; a file that fails or ends fails the request, never the
 * process. The rules are those of emel.h.
 */
#ifndef EMEL_READER_H
#define EMEL_READER_H

#include "emel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emel_reader emel_reader;

enum { EMEL_READER_LANES = 4 }; /* of a reader, each with a chunk of memory */

enum { EMEL_READ_AHEAD = 0, EMEL_READ_BEHIND = 1 }; /* what a range of the file will be: wanted soon, not any more */

/* Bytes read, 0 at the end of the file, or -errno. */
typedef int64_t (*emel_read_call)(void* context, int32_t descriptor, void* target, uint64_t n_bytes, uint64_t offset);
/* Takes a hint; what it returns changes nothing. */
typedef int32_t (*emel_advise_call)(void* context, int32_t descriptor, uint64_t offset, uint64_t n_bytes,
                                    int32_t advice);
/* The calls a reader makes of the system; NULL stands for the system's own. Any thread calls them. */
typedef struct emel_read_calls {
  void* context;
  emel_read_call read;
  emel_advise_call advise;
} emel_read_calls;

typedef struct emel_read_file {
  uint64_t n_bytes;
  int32_t descriptor; /* stays the caller's, open until the reader is destroyed */
  uint32_t is_direct; /* opened with O_DIRECT: reads are aligned to 4096 bytes, and there is nothing to advise */
} emel_read_file;

typedef struct emel_reader_desc {
  const emel_read_file* files; /* copied */
  uint64_t n_files; /* 1 to 1024 */
  uint64_t chunk_bytes; /* 64 KiB to 16 MiB, and at least 16 rows of every matrix */
  uint32_t keeps_cache; /* what was read stays in the page cache */
  uint32_t reserved;
  emel_read_calls calls;
} emel_reader_desc;

/* One matrix: where its rows begin in which file, and where their packed form goes. */
typedef struct emel_read_part {
  uint64_t offset;
  void* dst; /* 64-byte aligned, emel_pack_size bytes */
  uint64_t dst_bytes;
  uint64_t rows;
  uint64_t cols;
  uint32_t type;
  uint32_t file;
} emel_read_part;

enum {
  EMEL_READ_OK = 0,
  EMEL_READ_FAILED = 1, /* with the errno of the read */
  EMEL_READ_ENDED = 2, /* a file is shorter than it was */
  EMEL_READ_CANCELLED = 3 /* by a stop */
};

typedef struct emel_read_done {
  uint64_t ticket;
  int32_t status;
  int32_t error;
  uint64_t offset; /* in its file, of what failed */
  uint64_t file;
} emel_read_done;

typedef struct emel_read_totals {
  uint64_t n_bytes; /* of the files, by chunks that were read whole */
  uint64_t n_chunks;
} emel_read_totals;

/* Reads and packs all parts over the pool's lanes, and returns when that is done; the outcome (ticket 0) is OK, FAILED or
 * ENDED. Parts in file order are read in it. */
EMEL_API emel_status emel_load(emel_pool* pool, const emel_reader_desc* desc, const emel_read_part* parts,
                               uint64_t n_parts, emel_read_done* done);

EMEL_API emel_status emel_reader_create(const emel_reader_desc* desc, emel_reader** out);
/* Copies the parts (1 to 256, in file order for speed) and returns; the request completes once. Up to 32 requests may
 * be in flight. Urgent ones are read before others. What is refused does not complete. Allocates nothing. */
EMEL_API emel_status emel_reader_submit(emel_reader* reader, uint64_t ticket, const emel_read_part* parts,
                                        uint64_t n_parts, uint32_t is_urgent);
/* Waits for a request to complete: 1, and its outcome. 0 when the reader was stopped and nothing is left. */
EMEL_API int32_t emel_reader_next(emel_reader* reader, emel_read_done* done);
/* Cancels what has not been read; emel_reader_next still gives every request. */
EMEL_API void emel_reader_stop(emel_reader* reader);
EMEL_API void emel_reader_totals(emel_reader* reader, emel_read_totals* totals);
/* Stops and joins the lanes; no emel_reader_next may wait any more. */
EMEL_API void emel_reader_destroy(emel_reader* reader);

#ifdef __cplusplus
}
#endif
#endif
