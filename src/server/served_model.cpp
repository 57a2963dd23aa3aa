#include "server/served_model.h"

#include <chrono>

#include "base/error.h"
#include "engine/chat_prompt.h"

namespace wader {

Result<ServedModel> make_served_model(const Engine& engine, std::string id) {
  const Container& container = engine.container();
  ServedModel model;
  model.tokenizer = engine.tokenizer();
  if (model.tokenizer == nullptr)
    return unsupported_error("{} has no tokenizer: wader generate takes raw ids",
                             container.directory().string());
  ASSIGN_OR_RETURN(model.format, chat_format_of(container, *model.tokenizer));
  model.stop_ids = answer_stop_ids(*model.format, engine.eos_ids());
  model.max_text_bytes = most_text_bytes(*model.tokenizer, engine.plan().context);
  model.facts.id = std::move(id);
  for (std::string alias : {container.directory().stem().string(), container.manifest().source})
    if (!alias.empty() && alias != model.facts.id) model.facts.aliases.push_back(std::move(alias));
  model.facts.defaults = engine.default_sampling();
  model.facts.context = engine.plan().context;
  model.facts.vocab_rows = container.spec().vocab_rows;
  model.facts.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count();
  return model;
}

}  // namespace wader
