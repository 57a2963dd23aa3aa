#include <fmt/format.h>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/text.h"
#include "install/models.h"

namespace wader {
namespace {

std::string formats_of(const InstalledModel& model) {
  if (model.expert_format.empty()) return "?";
  return fmt::format("experts {}, trunk {}", model.expert_format, model.trunk_format);
}

// On one line.
std::string state_of(const InstalledModel& model) {
  std::string state(state_name(model.state));
  if (!model.problem.empty())
    return fmt::format("{}: {}", state, terminal_safe_line(model.problem));
  if (!model.in_place.empty())
    return fmt::format("{}, experts in place in {}", state, terminal_safe_line(model.in_place));
  return state;
}

}  // namespace

Result<int> run_list(const Args& args) {
  ASSIGN_OR_RETURN(const std::filesystem::path directory, models_directory());
  const std::vector<InstalledModel> models = list_models(directory);
  if (args.has("--json")) {
    Json list = Json::array();
    for (const InstalledModel& model : models) list.push_back(installed_model_json(model));
    print_json({{"directory", directory.string()}, {"models", list}});
    return 0;
  }
  if (models.empty()) {
    print(
        terminal_safe(fmt::format("nothing is installed in {}\ninstall a model with: wader install "
                                  "CHECKPOINT_DIRECTORY\n",
                                  directory.string())));
    return 0;
  }
  size_t width = 4, format_width = 7;
  for (const InstalledModel& model : models) {
    width = std::max(width, columns_of(model.name));
    format_width = std::max(format_width, formats_of(model).size());
  }
  print(bold(fmt::format("{}  {:<12} {:>16}  {:<{}}  {:>10}  {}", pad_to("name", width), "family",
                         "layers x experts", "formats", format_width, "on disk", "state")) +
        "\n");
  for (const InstalledModel& model : models) {
    const bool known = !model.family.empty();
    print(terminal_safe(fmt::format(
        "{}  {:<12} {:>16}  {:<{}}  {:>10}  {}\n", pad_to(terminal_safe_line(model.name), width),
        known ? model.family : "?",
        known ? fmt::format("{} x {}", model.layers, model.experts) : "?", formats_of(model),
        format_width, format_bytes(model.disk_bytes), state_of(model))));
  }
  return 0;
}

}  // namespace wader
