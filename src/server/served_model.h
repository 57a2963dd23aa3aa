// The model that a server serves: its engine behind a scheduler, and what requests are checked and
// rendered with. Replaced as a whole when another model is loaded; who works with it holds a
// shared_ptr.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "engine/engine.h"
#include "server/api.h"
#include "server/http.h"
#include "server/pass_recorder.h"
#include "server/scheduler.h"

namespace wader {

struct ServedModel {
  std::filesystem::path container;
  // The engine's thread tells the recorder what it does, to the scheduler's end.
  std::unique_ptr<PassRecorder> recorder;
  std::unique_ptr<Scheduler> scheduler;
  ModelFacts facts;
  const Tokenizer* tokenizer = nullptr;  // the engine's
  std::unique_ptr<ChatFormat> format;
  std::vector<TokenId> stop_ids;
  uint64_t max_text_bytes = 0;  // no longer text fits the context
  // What the disk gave when it was measured the way this engine reads; nothing where it never was.
  std::optional<double> disk_bytes_per_second;
  std::set<HttpExchange*> requests = {};  // that hold it; the network's thread

  const Engine& engine() const { return scheduler->engine(); }
};

// Opens an engine for `container` in a scheduler of its own, which tells `hub` of its passes.
// `id`: the name under which it is served; its directory's name and its source count too.
Result<std::shared_ptr<ServedModel>> load_model(const std::filesystem::path& container,
                                                std::string id, OpenEngine open,
                                                SchedulerOptions options, EventHub& hub);

}  // namespace wader
