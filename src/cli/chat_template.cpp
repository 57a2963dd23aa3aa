#include "cli/chat_template.h"

#include "chat/chat.h"

namespace wader {

Result<std::string> chat_template_of(const Container& container) {
  constexpr const char* kTemplate = "chat_template.jinja";
  constexpr const char* kConfig = "tokenizer_config.json";
  if (container.has_file(kTemplate)) return container.read_small_file(kTemplate);
  if (!container.has_file(kConfig)) return std::string();
  ASSIGN_OR_RETURN(const std::string config, container.read_small_file(kConfig));
  return chat_template_of_config(config);
}

}  // namespace wader
