// A repository of the hub as a SourceTree, and its files as ByteSources. Reads that an install has
// planned come out of its FetchQueue, all others are fetched as they come.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/source_tree.h"
#include "install/fetch_queue.h"
#include "install/hub_client.h"
#include "install/sha_check.h"

namespace wader {

// What all files of a repository share. The reading thread's, but for the client.
class HubSession {
 public:
  HubSession(std::unique_ptr<HubClient> client) : client_(std::move(client)) {}
  ~HubSession() { client_->shut_down(); }

  HubClient& client() { return *client_; }
  const HubClient& client() const { return *client_; }
  // Starts to fetch ahead, and to hash what passes by. `ahead_bytes`: as FetchQueue's.
  Status start(FetchPlan plan, FetchWindow window, uint64_t ahead_bytes);
  size_t position() const { return queue_ ? queue_->position() : 0; }
  void release(size_t position) {
    if (queue_) queue_->release(position);
  }
  // Waits for the digests of what was fetched; io where one is wrong.
  Status finish_proofs() { return queue_ ? queue_->finish_proofs() : Status(); }
  // Ends fetching ahead; the window's file is closed. Nothing more can be read.
  void stop();

  Status read(uint32_t file, uint64_t offset, std::span<std::byte> into);
  // A whole small file, checked against its digest.
  Result<std::string> read_text(uint32_t file, uint64_t max_bytes);

  // Weight files, by number in the repository: all that were opened; those whose SHA-256 was found
  // right over all of their bytes, and wrong.
  std::vector<uint32_t> files_opened() const;
  const std::vector<uint32_t>& files_proven() const { return proven_; }
  const std::vector<uint32_t>& files_refuted() const { return refuted_; }
  // From the file's first byte on, that are hashed before fetching ahead begins.
  uint64_t hashed_bytes(uint32_t file) const { return checks_.at(file).frontier(); }
  void open_file(uint32_t file);
  // Fetches the headers of safetensors files side by side, for read() to have them. What goes wrong
  // shows when they are read.
  void fetch_headers(std::span<const uint32_t> files);

 private:
  void restore_proofs(const FetchPlan& plan, const FetchWindow& window);

  std::unique_ptr<HubClient> client_;
  std::unique_ptr<FetchQueue> queue_;
  std::map<uint32_t, ShaCheck> checks_;
  std::map<uint32_t, std::string> texts_;             // small ones that were read
  std::map<uint32_t, std::vector<std::byte>> heads_;  // first bytes of others
  std::vector<uint32_t> proven_, refuted_;
};

class HubTree final : public SourceTree {
 public:
  // `kept`: a directory that may hold small files of an earlier run, or empty; they are taken where
  // their digest is right.
  HubTree(std::shared_ptr<HubSession> session, std::filesystem::path kept)
      : session_(std::move(session)),
        directory_(session_->client().repository()),
        kept_(std::move(kept)) {}

  const std::filesystem::path& directory() const override { return directory_; }
  bool has(std::string_view name) const override;
  bool has_folder(std::string_view name) const override;
  std::vector<std::string> names_ending(std::string_view ending) const override;
  Status check(std::string_view name) const override;
  Result<std::unique_ptr<ByteSource>> open(std::string_view name) const override;
  Result<std::string> read_text(std::string_view name, uint64_t max_bytes) const override;
  Result<SmallFile> small_file(std::string_view name, uint64_t max_bytes) const override;
  void will_read_headers(std::span<const std::string> names) const override;

 private:
  std::shared_ptr<HubSession> session_;
  std::filesystem::path directory_, kept_;
};

}  // namespace wader
