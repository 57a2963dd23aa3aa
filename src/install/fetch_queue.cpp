#include "install/fetch_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/thread.h"

namespace wader {

namespace {

// How long the reader's waiting is counted before it is judged.
constexpr std::chrono::milliseconds kCountTime{200};

}  // namespace

FetchQueue::FetchQueue(HubClient& client, FetchPlan plan, FetchWindow window,
                       std::vector<FetchProof> proofs, uint64_t ahead_bytes)
    : client_(client),
      reads_(std::move(plan.reads)),
      window_(std::move(window)),
      ahead_limit_bytes_(ahead_bytes),
      order_(std::move(plan.order)) {
  connections_ = std::min(connections_, client_.settings().connections);
  for (const FetchChunk& chunk : plan.chunks) {
    chunks_.emplace_back().plan = chunk;
    chunks_.back().uses_left = chunk.uses;
  }
  for (uint32_t i = static_cast<uint32_t>(order_.size()); i < chunks_.size(); ++i)
    order_.push_back(i);
  for (FetchProof& proof : proofs) proofs_.push_back({std::move(proof), {}});
  adopt_kept();
  set_up_proofs();
}

FetchQueue::~FetchQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    to_hash_.notify_all();
  }
  if (hasher_.joinable()) hasher_.join();
}

// What an earlier run fetched and did not come to use or to hash. Chunks are cut alike in every
// run, but this one may begin in the middle of one.
void FetchQueue::adopt_kept() {
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> by_end;  // (file, end) → chunk
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const SourceRange& range = chunks_[i].plan.range;
    by_end.emplace(std::pair(range.file, range.offset + range.bytes), i);
  }
  for (const FetchWindow::Kept& kept : window_.kept()) {
    const SourceRange& range = kept.range;
    const auto found = by_end.find({range.file, range.offset + range.bytes});
    Chunk* const chunk = found == by_end.end() ? nullptr : &chunks_[found->second];
    if (chunk != nullptr && !chunk->place && chunk->plan.range.offset >= range.offset &&
        chunk->plan.range.offset < range.offset + kept.received) {
      chunk->plan.range = range;
      chunk->place = kept.place;
      chunk->received = kept.received;
      if (kept.received == range.bytes) chunk->state = Chunk::State::there;
      if (counts_as_ahead(*chunk)) ahead_bytes_ += range.bytes;
      continue;
    }
    const bool wanted = std::any_of(proofs_.begin(), proofs_.end(), [&](const Proof& proof) {
      return proof.of.file == range.file && range.offset + range.bytes > proof.of.check.frontier();
    });
    if (!wanted || kept.received < range.bytes) {
      window_.give_back(kept.place);
      continue;
    }
    Chunk& left = chunks_.emplace_back();
    left.plan.range = range;
    left.place = kept.place;
    left.received = range.bytes;
    left.state = Chunk::State::there;
  }
}

void FetchQueue::set_up_proofs() {
  std::map<uint32_t, Proof*> proof_of;
  for (Proof& proof : proofs_) proof_of[proof.of.file] = &proof;
  for (uint32_t i = 0; i < chunks_.size(); ++i) {
    const SourceRange& range = chunks_[i].plan.range;
    const auto proof = proof_of.find(range.file);
    if (proof == proof_of.end() || range.offset + range.bytes <= proof->second->of.check.frontier())
      continue;
    proof->second->chunks.push_back(i);
    chunks_[i].to_hash = true;
  }
  for (Proof& proof : proofs_)
    std::sort(proof.chunks.begin(), proof.chunks.end(), [&](uint32_t a, uint32_t b) {
      return chunks_[a].plan.range.offset < chunks_[b].plan.range.offset;
    });
  // What no read and no proof wants: gaps of a plan for more proofs than these.
  for (Chunk& chunk : chunks_)
    if (chunk.uses_left == 0 && !chunk.to_hash) free_if_used(chunk, true);
}

Status FetchQueue::start() {
  ASSIGN_OR_RETURN(hasher_, start_thread([this] { hash_all(); }));
  client_.post([this] { pump(); });
  return {};
}

std::span<std::byte> FetchQueue::memory(Chunk& chunk) {
  const uint64_t bytes = chunk.plan.range.bytes;
  if (chunk.heap) return {chunk.heap.get(), bytes};
  return window_.bytes(*chunk.place).first(bytes);
}

// Fetched for the reader, who comes to it soon.
bool FetchQueue::counts_as_ahead(const Chunk& chunk) const {
  return chunk.plan.uses > 0 && !chunk.plan.early;
}

// Gives the chunk memory. `urgent`: the reader waits for this very one, so it must have some.
bool FetchQueue::prepare(Chunk& chunk, bool urgent) {
  if (chunk.place || chunk.heap) return true;
  const uint64_t bytes = chunk.plan.range.bytes;
  if (counts_as_ahead(chunk) && !urgent && ahead_bytes_ + bytes > ahead_limit_bytes_) return false;
  do chunk.place = window_.take(chunk.plan.range);
  while (!chunk.place && urgent && give_up_largest());
  if (!chunk.place && urgent) chunk.heap = std::make_unique<std::byte[]>(bytes);
  if (!chunk.place && !chunk.heap) return false;
  if (counts_as_ahead(chunk)) ahead_bytes_ += bytes;
  return true;
}

void FetchQueue::pump() {
  std::vector<uint32_t> begun;
  {
    const std::lock_guard lock(mutex_);
    const auto begin = [&](uint32_t number, bool urgent) {
      Chunk& chunk = chunks_[number];
      if (chunk.state != Chunk::State::waiting) return true;
      if (!prepare(chunk, urgent)) return false;
      chunk.state = Chunk::State::fetching;
      ++in_flight_;
      begun.push_back(number);
      return true;
    };
    // First of all, however many are under way and whatever has no room.
    if (wanted_) begin(*wanted_, true);
    while (next_ < order_.size() && in_flight_ < connections_ && begin(order_[next_], false))
      ++next_;
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
    if (chunk.place) window_.set_received(*chunk.place, received);
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
      to_hash_.notify_all();
    }
    pump();
  };
  client_.fetch(std::move(fetch));
}

// What was read to its end may be a transfer that has not come to its own end yet. Returns whether
// there is more room now.
bool FetchQueue::free_if_used(Chunk& chunk, bool unwanted) {
  if (chunk.uses_left > 0) return false;
  if (chunk.state != Chunk::State::there && !(unwanted && chunk.state == Chunk::State::waiting))
    return false;
  if (counts_as_ahead(chunk) && !chunk.released && (chunk.place || chunk.heap)) {
    ahead_bytes_ -= chunk.plan.range.bytes;
    chunk.released = true;
  }
  if (chunk.to_hash) {
    if (chunk.place) window_.set_aside(*chunk.place);
    return true;
  }
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
  if (refutation_) return *refutation_;
  while (chunk.received < bytes) {
    if (chunk.error) return *chunk.error;
    if (refutation_) return *refutation_;
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

FetchQueue::Proof* FetchQueue::next_to_hash() {
  for (Proof& proof : proofs_) {
    if (proof.state != Proof::State::running) continue;
    if (proof.next == proof.chunks.size()) return &proof;
    if (chunks_[proof.chunks[proof.next]].state == Chunk::State::there) return &proof;
  }
  return nullptr;
}

void FetchQueue::hash_all() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Proof* const proof = next_to_hash();
    if (proof == nullptr) {
      to_hash_.wait(lock);
      continue;
    }
    if (proof->next == proof->chunks.size()) {
      end_proof(*proof);
      continue;
    }
    Chunk& chunk = chunks_[proof->chunks[proof->next]];
    const std::span<const std::byte> bytes = memory(chunk);
    hashing_ = proof;  // nobody gives the chunk back meanwhile
    lock.unlock();
    proof->of.check.pass(chunk.plan.range.offset, bytes);
    lock.lock();
    hashing_ = nullptr;
    const auto slot = static_cast<uint32_t>(proof - proofs_.data());
    if (slot < FetchWindow::kProofs)
      window_.note_proof(slot,
                         {proof->of.file, proof->of.check.frontier(), proof->of.check.state()});
    ++proof->next;
    chunk.to_hash = false;
    if (free_if_used(chunk)) client_.post([this] { pump(); });
    changed_.notify_all();
  }
}

void FetchQueue::end_proof(Proof& proof) {
  const HubFile& file = client_.files()[proof.of.file];
  if (!proof.of.check.whole()) return give_up(proof);  // a piece of the plan was missing
  const std::string sha256 = proof.of.check.hex();
  proof.state = sha256 == proof.of.sha256 ? Proof::State::right : Proof::State::wrong;
  if (proof.state == Proof::State::wrong && !refutation_)
    refutation_ = io_error(
        "{}/{}: what was fetched has the SHA-256 {}, and the hub's list of files says {}: it was "
        "damaged on the way, or the list is wrong; what was made of this file is not kept",
        client_.repository(), file.name, sha256, proof.of.sha256);
  changed_.notify_all();
}

// The file's bytes need not wait any longer, and what is fetched only for this is not fetched.
void FetchQueue::give_up(Proof& proof) {
  proof.state = Proof::State::given_up;
  for (size_t i = proof.next + (hashing_ == &proof ? 1 : 0); i < proof.chunks.size(); ++i) {
    Chunk& chunk = chunks_[proof.chunks[i]];
    chunk.to_hash = false;
    free_if_used(chunk, chunk.plan.uses == 0);
  }
  changed_.notify_all();
}

// Of all that waits to be hashed, the file with most of it. False when there is none.
bool FetchQueue::give_up_largest() {
  Proof* largest = nullptr;
  uint64_t most = 0;
  for (Proof& proof : proofs_) {
    uint64_t held = 0;
    for (size_t i = proof.next + (hashing_ == &proof ? 1 : 0); i < proof.chunks.size(); ++i) {
      const Chunk& chunk = chunks_[proof.chunks[i]];
      if (chunk.state == Chunk::State::there && chunk.uses_left == 0)
        held += chunk.plan.range.bytes;
    }
    if (proof.state != Proof::State::running || held <= most) continue;
    most = held;
    largest = &proof;
  }
  if (largest != nullptr) give_up(*largest);
  return largest != nullptr;
}

bool FetchQueue::proofs_running() const {
  return std::any_of(proofs_.begin(), proofs_.end(),
                     [](const Proof& proof) { return proof.state == Proof::State::running; });
}

void FetchQueue::give_up_all() {
  for (Proof& proof : proofs_)
    if (proof.state == Proof::State::running) give_up(proof);
}

Status FetchQueue::finish_proofs() {
  // Rounds of 100 ms: pump() runs in the loop's thread and may be late.
  constexpr int kMostIdleRounds = 50;
  int idle_rounds = 0;
  std::unique_lock lock(mutex_);
  while (proofs_running() && !refutation_) {
    client_.post([this] { pump(); });
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    for (Proof& proof : proofs_) {
      if (proof.state != Proof::State::running || proof.next == proof.chunks.size()) continue;
      // No bytes of ours depend on what is still missing: the proof alone is lost.
      if (chunks_[proof.chunks[proof.next]].state == Chunk::State::failed) give_up(proof);
    }
    // Nothing under way and nothing to hash: what comes next has no room, and nobody makes any.
    if (in_flight_ == 0 && hashing_ == nullptr && next_to_hash() == nullptr && !refutation_ &&
        ++idle_rounds > kMostIdleRounds) {
      idle_rounds = 0;
      if (!give_up_largest()) give_up_all();
    }
    lock.unlock();
    RETURN_IF_ERROR(client_.may_wait());
    lock.lock();
  }
  if (refutation_) return *refutation_;
  return {};
}

void FetchQueue::drop_refuted() {
  const std::vector<uint32_t> files = refuted();
  const std::lock_guard lock(mutex_);
  for (Chunk& chunk : chunks_) {
    if (std::find(files.begin(), files.end(), chunk.plan.range.file) == files.end()) continue;
    if (chunk.place) window_.give_back(*chunk.place);
    chunk.place.reset();
  }
  for (uint32_t slot = 0; slot < std::min<size_t>(proofs_.size(), FetchWindow::kProofs); ++slot)
    if (proofs_[slot].state == Proof::State::wrong) window_.clear_proof(proofs_[slot].of.file);
}

std::vector<uint32_t> FetchQueue::in_state(Proof::State state) const {
  const std::lock_guard lock(mutex_);
  std::vector<uint32_t> files;
  for (const Proof& proof : proofs_)
    if (proof.state == state) files.push_back(proof.of.file);
  return files;
}

}  // namespace wader
