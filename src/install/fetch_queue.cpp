#include "install/fetch_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"

namespace wader {

namespace {

// How long the reader's waiting is counted before it is judged.
constexpr std::chrono::milliseconds kCountTime{200};

}  // namespace

FetchQueue::FetchQueue(HubClient& client, FetchPlan plan, FetchWindow window)
    : client_(client), reads_(std::move(plan.reads)), window_(std::move(window)) {
  connections_ = std::min(connections_, client_.settings().connections);
  for (const FetchChunk& chunk : plan.chunks) {
    chunks_.emplace_back().plan = chunk;
    chunks_.back().uses_left = chunk.uses;
  }
  adopt_kept();
}

// What an earlier run fetched and did not come to use. Chunks are cut alike in every run, but this
// one may begin in the middle of one.
void FetchQueue::adopt_kept() {
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> by_end;  // (file, end) → chunk
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const SourceRange& range = chunks_[i].plan.range;
    by_end.emplace(std::pair(range.file, range.offset + range.bytes), i);
  }
  for (const FetchWindow::Kept& kept : window_.kept()) {
    const auto found = by_end.find({kept.range.file, kept.range.offset + kept.range.bytes});
    Chunk* const chunk = found == by_end.end() ? nullptr : &chunks_[found->second];
    const bool fits = chunk != nullptr && !chunk->place &&
                      chunk->plan.range.offset >= kept.range.offset &&
                      chunk->plan.range.offset < kept.range.offset + kept.received;
    if (!fits) {
      window_.give_back(kept.place);
      continue;
    }
    chunk->place = kept.place;
    chunk->place_offset = chunk->plan.range.offset - kept.range.offset;
    chunk->received = kept.received - chunk->place_offset;
    if (chunk->received == chunk->plan.range.bytes) chunk->state = Chunk::State::there;
  }
}

void FetchQueue::start() {
  client_.post([this] { pump(); });
}

std::span<std::byte> FetchQueue::memory(Chunk& chunk) {
  const uint64_t bytes = chunk.plan.range.bytes;
  if (chunk.heap) return {chunk.heap.get(), bytes};
  return window_.bytes(*chunk.place).subspan(chunk.place_offset, bytes);
}

// Gives the chunk memory. `urgent`: the reader waits for this very one, so it must have some.
bool FetchQueue::prepare(Chunk& chunk, bool urgent) {
  if (chunk.place || chunk.heap) return true;
  chunk.place = window_.take(chunk.plan.range);
  if (!chunk.place && urgent) chunk.heap = std::make_unique<std::byte[]>(chunk.plan.range.bytes);
  return chunk.place || chunk.heap;
}

void FetchQueue::pump() {
  std::vector<uint32_t> begun;
  {
    const std::lock_guard lock(mutex_);
    while (next_ < chunks_.size() && in_flight_ < connections_) {
      Chunk& chunk = chunks_[next_];
      if (chunk.state == Chunk::State::waiting) {
        if (!prepare(chunk, wanted_ == next_)) break;
        chunk.state = Chunk::State::fetching;
        ++in_flight_;
        begun.push_back(next_);
      }
      ++next_;
    }
  }
  for (const uint32_t number : begun) fetch(number);
}

void FetchQueue::fetch(uint32_t number) {
  HubClient::Fetch fetch;
  {
    const std::lock_guard lock(mutex_);
    Chunk& chunk = chunks_[number];
    fetch.file = chunk.plan.range.file;
    fetch.offset = chunk.plan.range.offset;
    fetch.into = memory(chunk);
    fetch.received = chunk.received;
  }
  fetch.progress = [this, number](uint64_t received) {
    const std::lock_guard lock(mutex_);
    Chunk& chunk = chunks_[number];
    chunk.received = received;
    if (chunk.place) window_.set_received(*chunk.place, chunk.place_offset + received);
    if (wanted_ == number) changed_.notify_all();
  };
  fetch.done = [this, number](Status status) {
    {
      const std::lock_guard lock(mutex_);
      Chunk& chunk = chunks_[number];
      chunk.state = status.ok() ? Chunk::State::there : Chunk::State::failed;
      if (!status.ok()) chunk.error = std::move(status).error();
      free_if_used(chunk);
      --in_flight_;
      changed_.notify_all();
    }
    pump();
  };
  client_.fetch(std::move(fetch));
}

// What was read to its end may be a transfer that has not come to its own end yet.
bool FetchQueue::free_if_used(Chunk& chunk) {
  if (chunk.uses_left > 0 || chunk.state != Chunk::State::there) return false;
  if (chunk.place) window_.give_back(*chunk.place);
  chunk.place.reset();
  chunk.heap.reset();
  chunk.state = Chunk::State::gone;
  return true;
}

bool FetchQueue::is_next(const SourceRange& range) const {
  return cursor_ < reads_.size() && reads_[cursor_].range == range;
}

Status FetchQueue::wait_for(uint32_t number, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  Chunk& chunk = chunks_[number];
  const auto start = std::chrono::steady_clock::now();
  while (chunk.received < bytes) {
    if (chunk.error) return *chunk.error;
    if (wanted_ != number) {
      wanted_ = number;
      client_.post([this] { pump(); });  // there may be no room for it but for this
    }
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    RETURN_IF_ERROR(client_.may_wait());
    lock.lock();
  }
  wanted_.reset();
  // Starved: the network is what this install waits for, and another connection may bring more.
  // Where the disk is, few connections do, and a kill finds little under way.
  const auto now = std::chrono::steady_clock::now();
  waited_ += now - start;
  if (now - counted_from_ < kCountTime) return {};
  if (4 * waited_ >= 3 * (now - counted_from_) && connections_ < client_.settings().connections) {
    ++connections_;
    client_.post([this] { pump(); });
  }
  waited_ = {};
  counted_from_ = now;
  return {};
}

Status FetchQueue::read(std::span<std::byte> into) {
  CHECK(cursor_ < reads_.size() && into.size() == reads_[cursor_].range.bytes);
  const FetchPlan::Read& read = reads_[cursor_];
  uint32_t number = read.chunk;
  for (uint64_t done = 0; done < into.size(); ++number) {
    Chunk& chunk = chunks_[number];
    const SourceRange& range = chunk.plan.range;
    const uint64_t at = read.range.offset + done - range.offset;
    const uint64_t part = std::min(into.size() - done, range.bytes - at);
    RETURN_IF_ERROR(wait_for(number, at + part));
    // Not under the lock: these bytes stay until they are released, and only this thread does that.
    std::memcpy(into.data() + done, memory(chunk).data() + at, part);
    used_.push_back({cursor_, number, part});
    done += part;
  }
  ++cursor_;
  return {};
}

void FetchQueue::release(size_t position) {
  bool freed = false;
  {
    const std::lock_guard lock(mutex_);
    for (; !used_.empty() && used_.front().position < position; used_.pop_front()) {
      Chunk& chunk = chunks_[used_.front().chunk];
      chunk.uses_left -= used_.front().bytes;
      freed = free_if_used(chunk) || freed;
    }
  }
  if (freed) client_.post([this] { pump(); });
}

}  // namespace wader
