// The model that a server serves, as requests meet it: what never changes while it is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "engine/engine.h"
#include "server/api.h"

namespace wader {

struct ServedModel {
  ModelFacts facts;
  const Tokenizer* tokenizer = nullptr;  // the engine's
  std::unique_ptr<ChatFormat> format;
  std::vector<TokenId> stop_ids;
  uint64_t max_text_bytes = 0;  // no longer text fits the context
};

// `id`: the name under which it is served; its directory's name and its source count too.
Result<ServedModel> make_served_model(const Engine& engine, std::string id);

}  // namespace wader
