// HubClient: one repository of the hub at one commit. Requests are tried again as hub_rules.h says,
// go on where a transfer broke off, and follow redirects by hand: the token goes to the hub alone,
// a signed address that no longer works is asked for again. The blocking calls may come from any
// thread but the loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "install/http_loop.h"
#include "install/hub_rules.h"

namespace wader {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";
  std::string token = {};  // empty: none
  HttpSettings http = {};
  RetryLimits retry = {};
  uint32_t connections = 16;  // at most; begun with two
};

// HF_ENDPOINT; the token of HF_TOKEN or of the file that `hf auth login` writes (HF_TOKEN_PATH,
// HF_HOME/token, ~/.cache/huggingface/token). WADER_HUB_CONNECTIONS, WADER_HUB_STALL_SECONDS,
// WADER_HUB_TRIES and WADER_HUB_RETRY_MS change how patient we are.
Result<HubSettings> hub_settings_from_environment();
// Where the hub's own tools keep things: HF_HOME or ~/.cache/huggingface; and models that they
// downloaded: HF_HUB_CACHE or hub/ in it. Empty where there is no home.
std::filesystem::path hub_home();
std::filesystem::path hub_cache();

struct HubFile {
  std::string name;  // a relative path, checked
  uint64_t bytes;
  std::string sha256;   // of the contents, where the hub keeps it outside of git
  std::string git_oid;  // else: SHA-1 of the blob
  const std::string& oid() const { return sha256.empty() ? git_oid : sha256; }
};

// Called while a blocking call waits; false makes it end with `cancelled`. `note`: what it waits
// for, empty when nothing is out of the ordinary.
using HubWait = std::function<bool(std::string_view note)>;

class HubClient {
 public:
  static Result<std::unique_ptr<HubClient>> create(HubSettings settings, std::string repository);
  ~HubClient();

  // Resolves `revision` to a commit and lists its files. Everything after uses the commit.
  Status open(const std::string& revision);

  const std::string& repository() const { return repository_; }
  const std::string& commit() const { return commit_; }
  const HubSettings& settings() const { return settings_; }
  const std::vector<HubFile>& files() const { return files_; }
  std::optional<uint32_t> find(std::string_view name) const;

  void set_wait(HubWait wait);
  // Whether a blocking caller may go on waiting.
  Status may_wait() const;

  // Calls `get` until its answer makes sense, or a few times.
  Status again_while_bad(const std::function<Status()>& get);

  // Fills `into` from the file's `offset`.
  Status read(uint32_t file, uint64_t offset, std::span<std::byte> into);

  // Bytes a second at which `bytes` of the file come, from the first of them on; 0 when they came
  // too fast to say. They are thrown away.
  Result<double> measure_rate(uint32_t file, uint64_t offset, uint64_t bytes);

  // The same as read() without waiting. `received` bytes of `into` are there already. The callbacks
  // run in the loop's thread; `done` comes once.
  struct Fetch {
    uint32_t file = 0;
    uint64_t offset = 0;
    std::span<std::byte> into;
    uint64_t received = 0;
    std::function<void(uint64_t received)> progress;
    std::function<void(Status)> done;
  };
  void fetch(Fetch fetch);                // in the loop's thread
  void post(std::function<void()> task);  // runs it there
  uint64_t bytes_received() const { return bytes_received_; }
  // Ends all transfers; no callback runs afterwards, and nothing more can be read. The loop's
  // thread may be in a callback that starts the next transfer: so the loop goes only with this
  // object.
  void shut_down();

 private:
  struct Job;
  struct Link {             // of a file
    std::string url;        // signed, of a redirect; empty: ask the hub
    bool strayed = false;   // it came from elsewhere than the hub
    std::string etag;       // of its contents, as the first answer had it
    uint64_t received = 0;  // bytes of all ranges
  };

  // How many bytes of a range were there, and when.
  struct Arrival {
    std::chrono::steady_clock::time_point at{};
    uint64_t bytes = 0;
  };

  HubClient(HubSettings settings, std::string repository);
  Status read_in_time(uint32_t file, uint64_t offset, std::span<std::byte> into, Arrival& first,
                      Arrival& last);
  Result<std::string> get_text(const std::string& url, uint64_t max_bytes, std::string* next);
  Status list_page(std::string_view text);
  HubRequest request_of(const Job& job) const;
  bool token_goes_to(const std::string& url) const;
  void start(std::shared_ptr<Job> job);
  bool take_headers(Job& job, const HubAnswer& answer);
  bool take_body(Job& job, std::span<const std::byte> bytes);
  void end_transfer(std::shared_ptr<Job> job, const HubAnswer& answer);
  void try_again(std::shared_ptr<Job> job, const Judgement& judgement);
  void follow(std::shared_ptr<Job> job, const HubAnswer& answer);
  void note_retry(const RetrySchedule& schedule, const Error& error,
                  std::chrono::milliseconds delay);
  void drop_note(const RetrySchedule& schedule);

  HubSettings settings_;
  bool keeps_token_ = false;  // HubRequest::keeps_token
  std::string repository_, origin_, revision_, commit_;
  std::vector<HubFile> files_;
  std::vector<Link> links_;  // loop's thread, as paused_until_
  std::chrono::steady_clock::time_point paused_until_{};
  uint32_t random_ = 1;
  std::atomic<uint64_t> bytes_received_ = 0;
  std::atomic<bool> shut_down_ = false;

  mutable std::mutex mutex_;
  HubWait wait_;
  std::map<const RetrySchedule*, std::string> notes_;  // of those that wait for their next try
  std::unique_ptr<HttpLoop> loop_;                     // last: its thread uses the others
};

}  // namespace wader
