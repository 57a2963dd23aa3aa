// FetchWindow: the memory that fetched bytes wait in until what was made of them is kept. It is a
// file in the unfinished container, mapped and shared: what a killed process had fetched is still
// in the page cache, and the next run takes it up. After a restart of the machine the file may lie
// (pages are written in any order), so it is believed only under the same boot id. Where no file
// can be mapped it is plain memory, and a kill costs a window. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "install/fetch_plan.h"
#include "install/sha_check.h"
#include "io/file.h"

namespace wader {

constexpr std::string_view kFetchFile = "fetch.part";

class FetchWindow {
 public:
  // `path` empty: plain memory. `identity`: of source and options; a file with another is emptied.
  static Result<FetchWindow> open(const std::filesystem::path& path, uint64_t capacity_bytes,
                                  uint64_t identity);
  FetchWindow(FetchWindow&&) noexcept;
  FetchWindow& operator=(FetchWindow&&) noexcept;
  ~FetchWindow();

  // What an earlier run left: a range of which the first `received` bytes are there.
  struct Kept {
    uint32_t place;
    SourceRange range;
    uint64_t received;
  };
  const std::vector<Kept>& kept() const { return kept_; }

  // How far the digest of a file came (install/sha_check.h), kept as the bytes are.
  struct KeptProof {
    uint32_t file;
    uint64_t frontier;
    ShaCheck::State state;
  };
  const std::vector<KeptProof>& kept_proofs() const { return kept_proofs_; }
  // `slot` below kProofs, the same for a file each time. A kill in between keeps the one before.
  void note_proof(uint32_t slot, const KeptProof& proof);
  void clear_proof(uint32_t file);

  // A place for a range; nothing while there is no room.
  std::optional<uint32_t> take(const SourceRange& range);
  std::span<std::byte> bytes(uint32_t place);
  void set_received(uint32_t place, uint64_t bytes);
  void give_back(uint32_t place);
  // Not looked at for a while: the bytes stay, in the page cache or on the disk, but are no memory
  // of this process.
  void set_aside(uint32_t place);
  // Whether it has a file.
  bool is_kept() const { return file_.is_open(); }
  uint64_t capacity_bytes() const { return capacity_bytes_; }

  static constexpr uint32_t kProofs = 256;

 private:
  struct Entry;
  struct ProofSlot;
  struct Header;
  FetchWindow() = default;
  Entry& entry(uint32_t place);
  void adopt();

  File file_;  // open where the memory is one
  std::byte* memory_ = nullptr;
  uint64_t mapped_bytes_ = 0, capacity_bytes_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset → bytes
  std::vector<uint32_t> idle_;         // entries that are not in use
  std::vector<Kept> kept_;
  std::vector<KeptProof> kept_proofs_;
};

}  // namespace wader
