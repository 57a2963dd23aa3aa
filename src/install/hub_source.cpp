#include "install/hub_source.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/index.h"
#include "install/hub_tree.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// "org/name" → models--org--name.
std::string cache_folder(std::string_view repository) {
  std::string folder = "models--";
  for (const char c : repository) folder += c == '/' ? std::string("--") : std::string(1, c);
  return folder;
}

// Tools write a snapshot file by file: one that is still loading lacks some.
bool is_complete(const fs::path& snapshot) {
  std::error_code error;
  return fs::is_regular_file(snapshot / "config.json", error) &&
         fs::is_regular_file(snapshot / "tokenizer.json", error) && find_shards(snapshot).ok();
}

}  // namespace

fs::path find_snapshot(const fs::path& cache, std::string_view repository,
                       std::string_view revision) {
  if (cache.empty() || !is_hub_id(repository) || !is_hub_revision(revision)) return {};
  const fs::path folder = cache / cache_folder(repository);
  std::string commit(revision);
  if (!is_commit(revision)) {
    if (!check_relative_name(revision).ok()) return {};
    const auto text = read_text_file(folder / "refs" / revision, 4 * kKiB);
    if (!text.ok()) return {};
    commit = text->substr(0, text->find_last_not_of(" \r\n") + 1);
    if (!is_commit(commit)) return {};
  }
  const fs::path snapshot = folder / "snapshots" / commit;
  return is_complete(snapshot) ? snapshot : fs::path();
}

Result<HubSource> find_hub_source(const HubSettings& settings, const std::string& repository,
                                  const std::string& revision, const fs::path& cache,
                                  const HubWait& wait) {
  HubSource source;
  // A commit does not change: no need to ask.
  if (is_commit(revision)) source.snapshot = find_snapshot(cache, repository, revision);
  if (!source.snapshot.empty()) return source;
  const fs::path cached = find_snapshot(cache, repository, revision);
  HubSettings patience = settings;
  if (!cached.empty()) patience.retry.tries = std::min(patience.retry.tries, 2u);
  ASSIGN_OR_RETURN(auto client, HubClient::create(patience, repository));
  client->set_wait(wait);
  Status opened = client->open(revision);
  if (!opened.ok()) {
    if (cached.empty() || opened.error().code == ErrorCode::cancelled)
      return std::move(opened).error();
    source.snapshot = cached;
    source.note = fmt::format("{}; taking what the hub's local cache has as {}",
                              opened.error().message, revision);
    return source;
  }
  source.snapshot = find_snapshot(cache, repository, client->commit());
  if (!source.snapshot.empty()) return source;
  if (!cached.empty()) {  // now with all patience
    const std::string commit = client->commit();
    ASSIGN_OR_RETURN(client, HubClient::create(settings, repository));
    client->set_wait(wait);
    RETURN_IF_ERROR(client->open(commit));
  }
  source.session = std::make_shared<HubSession>(std::move(client));
  return source;
}

}  // namespace wader
