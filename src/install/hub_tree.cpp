#include "install/hub_tree.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "base/units.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"
#include "install/proof_plan.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// config.json is read by several; a tokenizer is kept by who asked for it.
constexpr uint64_t kMaxCachedBytes = 1 * kMiB;
// Headers of released shards have up to 0.5 MiB; a longer one is read when its turn comes.
constexpr uint64_t kMaxHeadBytes = 4 * kMiB;

// One file of the repository.
class HubSource final : public ByteSource {
 public:
  HubSource(std::shared_ptr<HubSession> session, uint32_t file)
      : session_(std::move(session)),
        file_(file),
        path_(fmt::format("{}/{}", session_->client().repository(),
                          session_->client().files()[file].name)) {}

  const std::string& path() const override { return path_; }
  Result<uint64_t> size() const override { return facts().bytes; }
  Result<SourceStamp> stamp() const override {
    return SourceStamp{facts().bytes, 0, facts().oid()};
  }
  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    return session_->read(file_, offset, into);
  }

 private:
  const HubFile& facts() const { return session_->client().files()[file_]; }

  std::shared_ptr<HubSession> session_;
  uint32_t file_;
  std::string path_;
};

bool matches(const HubFile& file, std::string_view text) {
  return file.sha256.empty() ? git_blob_hex(text) == file.git_oid : sha256_hex(text) == file.sha256;
}

}  // namespace

// Where an earlier run's digests stood. One counts if all of its bytes that are still to be read
// are those that it was made of, and not fetched again.
void HubSession::restore_proofs(const FetchPlan& plan, const FetchWindow& window) {
  for (const FetchWindow::KeptProof& kept : window.kept_proofs()) {
    const auto check = checks_.find(kept.file);
    if (check == checks_.end() || kept.frontier <= check->second.frontier()) continue;
    const auto is_there = [&](const SourceRange& range) {
      return std::any_of(window.kept().begin(), window.kept().end(), [&](const auto& k) {
        return k.range.file == range.file && k.received == k.range.bytes &&
               k.range.offset <= range.offset &&
               k.range.offset + k.range.bytes == range.offset + range.bytes;
      });
    };
    const bool good = std::all_of(plan.chunks.begin(), plan.chunks.end(), [&](const auto& chunk) {
      return chunk.range.file != kept.file || chunk.range.offset >= kept.frontier ||
             is_there(chunk.range);
    });
    if (good) check->second.restore(kept.frontier, kept.state);
  }
}

Status HubSession::start(FetchPlan plan, FetchWindow window, uint64_t ahead_bytes) {
  CHECK(queue_ == nullptr);
  heads_.clear();
  restore_proofs(plan, window);
  std::vector<ProofFile> files;
  for (const auto& [file, check] : checks_)
    if (!client_->files()[file].sha256.empty())
      files.push_back({file, check.file_bytes(), check.frontier()});
  // What an earlier run left has its place already; of that, what is still to be read is in the
  // plan.
  std::set<std::tuple<uint32_t, uint64_t, uint64_t>> planned;
  for (const FetchChunk& chunk : plan.chunks)
    planned.emplace(chunk.range.file, chunk.range.offset, chunk.range.bytes);
  std::vector<SourceRange> kept;
  uint64_t room = window.is_kept() ? window.capacity_bytes() - ahead_bytes : 0;
  for (const FetchWindow::Kept& k : window.kept()) {
    room += k.range.bytes;
    if (k.received == k.range.bytes &&
        !planned.contains({k.range.file, k.range.offset, k.range.bytes}))
      kept.push_back(k.range);
  }
  std::vector<FetchProof> proofs;
  for (const uint32_t file : plan_proofs(plan, files, kept, room).files)
    proofs.push_back({file, checks_.at(file), client_->files()[file].sha256});
  queue_ = std::make_unique<FetchQueue>(*client_, std::move(plan), std::move(window),
                                        std::move(proofs), ahead_bytes);
  return queue_->start();
}

void HubSession::stop() {
  if (queue_ == nullptr) return;
  client_->shut_down();
  proven_ = queue_->proven();
  refuted_ = queue_->refuted();
  queue_->drop_refuted();
  queue_.reset();
}

void HubSession::open_file(uint32_t file) {
  checks_.try_emplace(file, client_->files()[file].bytes);
}

std::vector<uint32_t> HubSession::files_opened() const {
  std::vector<uint32_t> files;
  for (const auto& [file, check] : checks_) files.push_back(file);
  return files;
}

void HubSession::fetch_headers(std::span<const uint32_t> files) {
  std::vector<std::vector<std::byte>> heads(files.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < files.size();) {
      std::array<std::byte, kSafetensorsPrefixBytes> prefix;
      if (!client_->read(files[i], 0, prefix).ok()) continue;
      const auto bytes = safetensors_header_bytes(prefix, client_->files()[files[i]].bytes);
      if (!bytes.ok() || *bytes > kMaxHeadBytes) continue;
      heads[i].assign(prefix.begin(), prefix.end());
      heads[i].resize(prefix.size() + *bytes);
      const auto rest = std::span(heads[i]).subspan(prefix.size());
      if (!client_->read(files[i], prefix.size(), rest).ok()) heads[i].clear();
    }
  };
  std::vector<std::thread> others;
  for (size_t n = 1; n < std::min<size_t>(client_->settings().connections, files.size()); ++n) {
    auto other = start_thread(work);
    if (!other.ok()) break;  // it works with those it has
    others.push_back(*std::move(other));
  }
  work();
  for (std::thread& thread : others) thread.join();
  for (size_t i = 0; i < files.size(); ++i)
    if (!heads[i].empty()) heads_[files[i]] = std::move(heads[i]);
}

Status HubSession::read(uint32_t file, uint64_t offset, std::span<std::byte> into) {
  if (queue_ && queue_->is_next({file, offset, into.size()})) return queue_->read(into);
  const auto head = heads_.find(file);
  if (head != heads_.end() && in_file(offset, into.size(), head->second.size())) {
    std::memcpy(into.data(), head->second.data() + offset, into.size());
  } else {
    RETURN_IF_ERROR(client_->read(file, offset, into));
  }
  const auto check = checks_.find(file);
  if (!queue_ && check != checks_.end()) check->second.pass(offset, into);
  return {};
}

Result<std::string> HubSession::read_text(uint32_t file, uint64_t max_bytes) {
  if (const auto cached = texts_.find(file); cached != texts_.end()) return cached->second;
  const HubFile& facts = client_->files()[file];
  if (facts.bytes > max_bytes)
    return corrupt_error("{}/{}: {} bytes, and a file of this kind has at most {}",
                         client_->repository(), facts.name, facts.bytes, max_bytes);
  std::string text(facts.bytes, '\0');
  const auto get = [&]() -> Status {
    RETURN_IF_ERROR(client_->read(file, 0, std::as_writable_bytes(std::span(text))));
    if (matches(facts, text)) return {};
    return corrupt_error("{}/{}: what was fetched has not the digest that the hub gives",
                         client_->repository(), facts.name);
  };
  RETURN_IF_ERROR(client_->again_while_bad(get));
  if (text.size() <= kMaxCachedBytes) texts_[file] = text;
  return text;
}

bool HubTree::has(std::string_view name) const {
  return session_->client().find(name).has_value();
}

bool HubTree::has_folder(std::string_view name) const {
  const std::string prefix = std::string(name) + "/";
  const auto& files = session_->client().files();
  return std::any_of(files.begin(), files.end(),
                     [&](const HubFile& f) { return f.name.starts_with(prefix); });
}

std::vector<std::string> HubTree::names_ending(std::string_view ending) const {
  std::vector<std::string> names;
  for (const HubFile& file : session_->client().files())
    if (file.name.ends_with(ending) && file.name.find('/') == file.name.npos)
      names.push_back(file.name);
  return names;
}

Status HubTree::check(std::string_view name) const {
  RETURN_IF_ERROR(check_relative_name(name));
  if (has(name)) return {};
  return not_found_error("{} has no file {}", directory_.string(), name);
}

void HubTree::will_read_headers(std::span<const std::string> names) const {
  std::vector<uint32_t> files;
  for (const std::string& name : names)
    if (const auto file = session_->client().find(name)) files.push_back(*file);
  session_->fetch_headers(files);
}

Result<std::unique_ptr<ByteSource>> HubTree::open(std::string_view name) const {
  const auto file = session_->client().find(name);
  if (!file) return check(name).error();
  session_->open_file(*file);
  return std::unique_ptr<ByteSource>(std::make_unique<HubSource>(session_, *file));
}

Result<std::string> HubTree::read_text(std::string_view name, uint64_t max_bytes) const {
  const auto file = session_->client().find(name);
  if (!file) return check(name).error();
  std::error_code error;
  if (const fs::path kept = kept_ / name; !kept_.empty() && fs::is_regular_file(kept, error)) {
    auto text = read_text_file(kept, max_bytes);
    if (text.ok() && matches(session_->client().files()[*file], *text)) return text;
  }
  return session_->read_text(*file, max_bytes);
}

Result<SmallFile> HubTree::small_file(std::string_view name, uint64_t max_bytes) const {
  ASSIGN_OR_RETURN(std::string text, read_text(name, max_bytes));
  return SmallFile{std::string(name), std::move(text)};
}

}  // namespace wader
