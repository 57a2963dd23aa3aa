// How a server opens models: what the command line's flags make of a container.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "base/result.h"
#include "engine/engine.h"
#include "server/generation.h"

namespace wader {

struct ModelOpener {
  std::function<Result<std::unique_ptr<Engine>>(const std::filesystem::path& container,
                                                RoutingListener on_routing)>
      open = {};
  // What open() would plan with no other model loaded; loads nothing. From any thread, after the
  // first open().
  std::function<Result<MemoryPlan>(const std::filesystem::path& container)> plan = {};
};

}  // namespace wader
