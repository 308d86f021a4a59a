#include "io/reader.h"

#include <string.h>

#include "core/allocation.h"
#include "core/error.h"
#include "core/float_environment.h"

namespace emel {
namespace {

struct LaneStart {
  emel_reader* reader;
  uint32_t index;
};

// The request whose next chunk is read next: urgent ones first, then the oldest. nullptr when all are cut.
Request* next_request(emel_reader* reader) {
  Request* best = nullptr;
  for (Request& each : reader->requests) {
    if (each.state != Request::State::kQueued || each.is_cut()) continue;
    if (best == nullptr || (each.is_urgent && !best->is_urgent) ||
        (each.is_urgent == best->is_urgent && each.order < best->order)) {
      best = &each;
    }
  }
  return best;
}

void complete_if_over(emel_reader* reader, Request* request) {
  if (request->state != Request::State::kQueued || !request->is_cut() || request->n_reading != 0) return;
  request->state = Request::State::kDone;
  pthread_cond_broadcast(&reader->completed);
}

void cancel_all(emel_reader* reader) {
  emel_read_done cancelled{};
  cancelled.status = EMEL_READ_CANCELLED;
  for (Request& each : reader->requests) {
    if (each.state != Request::State::kQueued || each.is_cut()) continue;
    fail_rest(&each, cancelled);
    complete_if_over(reader, &each);
  }
}

// The chunks that would be cut next, of as many requests as they take; nothing is cut.
Ahead look_ahead(emel_reader* reader) {
  Ahead ahead{};
  Request* cut[kReadLanes];
  Cursor before[kReadLanes];
  while (ahead.n < kReadLanes && (cut[ahead.n] = next_request(reader)) != nullptr) {
    before[ahead.n] = cut[ahead.n]->next;
    const Chunk chunk = cut_chunk(cut[ahead.n], reader->desc.chunk_bytes);
    ahead.file[ahead.n] = chunk.file;
    ahead.offset[ahead.n] = chunk.offset;
    ahead.n_bytes[ahead.n++] = chunk.n_bytes;
  }
  for (uint32_t i = ahead.n; i-- > 0;) cut[i]->next = before[i];
  return ahead;
}

void run_chunk(emel_reader* reader, Request* request, uint8_t* staging) {
  const Chunk chunk = cut_chunk(request, reader->desc.chunk_bytes);
  ++request->n_reading;
  const Ahead ahead = look_ahead(reader);
  pthread_mutex_unlock(&reader->mutex);
  emel_read_done done{};
  const bool is_read = read_chunk(reader->desc, *request, chunk, ahead, staging, &done);
  pthread_mutex_lock(&reader->mutex);
  --request->n_reading;
  if (is_read) {
    reader->totals.n_bytes += chunk.n_bytes;
    ++reader->totals.n_chunks;
  } else {
    fail_rest(request, done);
  }
  complete_if_over(reader, request);
}

void* read_lane(void* argument) {
  const LaneStart start = *static_cast<LaneStart*>(argument);
  release(argument);
  emel_reader* reader = start.reader;
  const FloatEnvironment environment;
  pthread_mutex_lock(&reader->mutex);
  while (!reader->is_stopping) {
    Request* request = next_request(reader);
    if (request == nullptr) {
      pthread_cond_wait(&reader->work, &reader->mutex);
    } else {
      run_chunk(reader, request, reader->staging[start.index]);
    }
  }
  --reader->n_lanes_left;
  pthread_cond_broadcast(&reader->completed);
  pthread_mutex_unlock(&reader->mutex);
  return nullptr;
}

bool start_lane(emel_reader* reader, uint32_t index) {
  reader->staging[index] = static_cast<uint8_t*>(allocate(staging_bytes(reader->desc)));
  auto* start = allocate_array<LaneStart>(1);
  if (reader->staging[index] == nullptr || start == nullptr) {
    release(start);
    return false;
  }
  *start = {reader, index};
  if (pthread_create(&reader->threads[index], nullptr, read_lane, start) != 0) {
    release(start);
    return false;
  }
  ++reader->n_threads;
  ++reader->n_lanes_left;
  return true;
}

Request* free_request(emel_reader* reader) {
  for (Request& each : reader->requests) {
    if (each.state == Request::State::kFree) return &each;
  }
  return nullptr;
}

// The oldest that completed; nullptr when there is none.
Request* done_request(emel_reader* reader) {
  Request* oldest = nullptr;
  for (Request& each : reader->requests) {
    if (each.state == Request::State::kDone && (oldest == nullptr || each.order < oldest->order)) oldest = &each;
  }
  return oldest;
}

}  // namespace
}  // namespace emel

emel_status emel_reader_create(const emel_reader_desc* desc, emel_reader** out) {
  if (desc == nullptr || out == nullptr) return emel::fail(EMEL_INVALID_ARGUMENT, "read: desc or out is NULL");
  *out = nullptr;
  const emel_status status = emel::check_desc(*desc);
  if (status != EMEL_OK) return status;
  auto* reader = static_cast<emel_reader*>(emel::allocate(sizeof(emel_reader)));
  auto* files = emel::allocate_array<emel_read_file>(desc->n_files);
  if (reader == nullptr || files == nullptr) {
    emel::release(reader);
    emel::release(files);
    return emel::fail(EMEL_OUT_OF_MEMORY, "read: out of memory");
  }
  memcpy(files, desc->files, desc->n_files * sizeof *files);
  reader->desc = *desc;
  reader->desc.files = files;
  pthread_mutex_init(&reader->mutex, nullptr);
  pthread_cond_init(&reader->work, nullptr);
  pthread_cond_init(&reader->completed, nullptr);
  bool is_started = true;
  for (uint32_t index = 0; is_started && index < emel::kReadLanes; ++index) {
    is_started = emel::start_lane(reader, index);
  }
  if (!is_started) {
    emel_reader_destroy(reader);
    return emel::fail(EMEL_OUT_OF_MEMORY, "read: cannot start %u lanes", emel::kReadLanes);
  }
  *out = reader;
  return EMEL_OK;
}

emel_status emel_reader_submit(emel_reader* reader, uint64_t ticket, const emel_read_part* parts, uint64_t n_parts,
                               uint32_t is_urgent) {
  if (reader == nullptr || parts == nullptr || n_parts == 0 || n_parts > emel::kMostParts) {
    return emel::fail(EMEL_INVALID_ARGUMENT, "read: no reader, or %llu parts; allowed are 1 to %llu",
                      static_cast<unsigned long long>(n_parts), static_cast<unsigned long long>(emel::kMostParts));
  }
  for (uint64_t i = 0; i < n_parts; ++i) {
    const emel_status status = emel::check_part(reader->desc, parts[i], i);
    if (status != EMEL_OK) return status;
  }
  pthread_mutex_lock(&reader->mutex);
  emel::Request* request = reader->is_stopping ? nullptr : emel::free_request(reader);
  if (request != nullptr) {
    request->state = emel::Request::State::kQueued;
    request->ticket = ticket;
    request->order = reader->n_submitted++;
    request->is_urgent = is_urgent != 0;
    request->n_parts = n_parts;
    memcpy(request->parts, parts, n_parts * sizeof *parts);
    request->next = {0, 0};
    request->n_reading = 0;
    request->done = {};
    request->done.ticket = ticket;
    pthread_cond_broadcast(&reader->work);
  }
  const bool is_stopping = reader->is_stopping;
  pthread_mutex_unlock(&reader->mutex);
  if (request != nullptr) return EMEL_OK;
  return is_stopping ? emel::fail(EMEL_INVALID_ARGUMENT, "read: the reader was stopped")
                     : emel::fail(EMEL_OUT_OF_MEMORY, "read: all %u requests are in flight", emel::kMostRequests);
}

int32_t emel_reader_next(emel_reader* reader, emel_read_done* done) {
  if (reader == nullptr || done == nullptr) return 0;
  pthread_mutex_lock(&reader->mutex);
  emel::Request* request = emel::done_request(reader);
  while (request == nullptr && reader->n_lanes_left != 0) {
    pthread_cond_wait(&reader->completed, &reader->mutex);
    request = emel::done_request(reader);
  }
  if (request != nullptr) {
    *done = request->done;
    request->state = emel::Request::State::kFree;
  }
  pthread_mutex_unlock(&reader->mutex);
  return request != nullptr ? 1 : 0;
}

void emel_reader_stop(emel_reader* reader) {
  if (reader == nullptr) return;
  pthread_mutex_lock(&reader->mutex);
  reader->is_stopping = true;
  emel::cancel_all(reader);
  pthread_cond_broadcast(&reader->work);
  pthread_mutex_unlock(&reader->mutex);
}

void emel_reader_totals(emel_reader* reader, emel_read_totals* totals) {
  pthread_mutex_lock(&reader->mutex);
  *totals = reader->totals;
  pthread_mutex_unlock(&reader->mutex);
}

void emel_reader_destroy(emel_reader* reader) {
  if (reader == nullptr) return;
  emel_reader_stop(reader);
  for (uint32_t i = 0; i < reader->n_threads; ++i) pthread_join(reader->threads[i], nullptr);
  for (uint8_t* staging : reader->staging) emel::release(staging);
  emel::release(const_cast<emel_read_file*>(reader->desc.files));
  pthread_cond_destroy(&reader->completed);
  pthread_cond_destroy(&reader->work);
  pthread_mutex_destroy(&reader->mutex);
  emel::release(reader);
}
