// Which place an install takes a model of the hub from: the hub's local cache where it holds the
// very commit, else the network.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "install/hub_client.h"

namespace wader {

class HubSession;

struct HubSource {
  std::filesystem::path snapshot;       // a complete one of the local cache; or
  std::shared_ptr<HubSession> session;  // an open repository
  std::string note;                     // worth a line, or empty
};

// Asks the hub for the commit of `revision` and looks for it in `cache` (hub_cache()). When the hub
// cannot be reached, what the cache has under that name is taken, and the note says so. `wait`:
// HubClient::set_wait.
Result<HubSource> find_hub_source(const HubSettings& settings, const std::string& repository,
                                  const std::string& revision, const std::filesystem::path& cache,
                                  const HubWait& wait);

// snapshots/COMMIT of a repository in a cache, when config.json and all weights of its index are
// there; `revision` is a commit or a name under refs. Empty when there is none.
std::filesystem::path find_snapshot(const std::filesystem::path& cache, std::string_view repository,
                                    std::string_view revision);

}  // namespace wader
