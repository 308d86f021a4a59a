// Weights that stay: the lanes of a pool take chunk after chunk of a file, read it and pack it while it is in their cache.
#include <pthread.h>
#include <string.h>

#include "core/allocation.h"
#include "core/error.h"
#include "io/reader.h"
#include "pool/pool.h"

namespace emel {
namespace {

struct LoadRun {
  const emel_reader_desc* desc;
  Request* request;
  pthread_mutex_t* mutex;  // of the request
  uint8_t* staging;  // of all lanes
};

void load_lane(void* context, const Lane& lane) {
  const auto* run = static_cast<const LoadRun*>(context);
  uint8_t* staging = run->staging + lane.index * staging_bytes(*run->desc);
  pthread_mutex_lock(run->mutex);
  while (!run->request->is_cut()) {
    const Chunk chunk = cut_chunk(run->request, run->desc->chunk_bytes);
    pthread_mutex_unlock(run->mutex);
    emel_read_done done{};
    const bool is_read = read_chunk(*run->desc, *run->request, chunk, Ahead{}, staging, &done);
    pthread_mutex_lock(run->mutex);
    if (!is_read) fail_rest(run->request, done);
  }
  pthread_mutex_unlock(run->mutex);
}

}  // namespace
}  // namespace emel

emel_status emel_load(emel_pool* pool, const emel_reader_desc* desc, const emel_read_part* parts, uint64_t n_parts,
                      emel_read_done* done) {
  if (pool == nullptr || desc == nullptr || done == nullptr || (parts == nullptr && n_parts != 0)) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "load: pool, desc, parts or done is NULL");
  }
  emel_status status = emel::check_desc(*desc);
  for (uint64_t i = 0; status == EMEL_OK && i < n_parts; ++i) status = emel::check_part(*desc, parts[i], i);
  if (status != EMEL_OK) return status;
  auto* staging = static_cast<uint8_t*>(emel::allocate(pool->n_lanes * emel::staging_bytes(*desc)));
  if (staging == nullptr) return emel::fail(EMEL_OUT_OF_MEMORY, "load: out of memory");
  pthread_mutex_t mutex;
  pthread_mutex_init(&mutex, nullptr);
  emel::Request request{};
  for (uint64_t begin = 0; begin < n_parts && request.done.status == EMEL_READ_OK; begin += emel::kMostParts) {
    request.n_parts = n_parts - begin < emel::kMostParts ? n_parts - begin : emel::kMostParts;
    memcpy(request.parts, parts + begin, request.n_parts * sizeof *parts);
    request.next = {0, 0};
    emel::LoadRun run{desc, &request, &mutex, staging};
    pool->run(emel::load_lane, &run);
  }
  *done = request.done;
  pthread_mutex_destroy(&mutex);
  emel::release(staging);
  return EMEL_OK;
}
