#include "server/served_model.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "engine/chat_prompt.h"
#include "engine/read_setup.h"

namespace wader {
namespace {

ModelFacts facts_of(const Engine& engine, std::string id) {
  const Container& container = engine.container();
  ModelFacts facts;
  facts.id = std::move(id);
  for (std::string alias : {container.directory().stem().string(), container.manifest().source})
    if (!alias.empty() && alias != facts.id) facts.aliases.push_back(std::move(alias));
  facts.defaults = engine.default_sampling();
  facts.context = engine.plan().context;
  facts.vocab_rows = container.spec().vocab_rows;
  facts.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  return facts;
}

std::optional<double> disk_rate(const Engine& engine) {
  const auto report = report_reads(engine.container(), EngineOptions());
  if (!report.ok()) return {};
  for (const MeasuredMethod& rate : report->rates.rates)
    if (read_method_text(rate.method) == engine.io_description()) return rate.bytes_per_second;
  return {};
}

}  // namespace

Result<std::shared_ptr<ServedModel>> load_model(const std::filesystem::path& container,
                                                std::string id, OpenEngine open,
                                                SchedulerOptions options, EventHub& hub) {
  auto model = std::make_shared<ServedModel>();
  model->container = container;
  model->recorder = std::make_unique<PassRecorder>(hub);
  PassRecorder& recorder = *model->recorder;
  options.on_routing = [&recorder](uint32_t layer, std::span<const uint32_t> ids) {
    recorder.on_routing(layer, ids);
  };
  options.on_pass = [&recorder](uint64_t request, uint32_t rows, bool prefill) {
    recorder.end_pass({request, rows, prefill});
  };
  options.on_request_end = [&recorder] { recorder.publish_residents(); };
  ASSIGN_OR_RETURN(model->scheduler, Scheduler::start(std::move(open), options));
  const Engine& engine = model->engine();
  model->tokenizer = engine.tokenizer();
  if (model->tokenizer == nullptr)
    return unsupported_error("{} has no tokenizer: wader generate takes raw ids",
                             container.string());
  ASSIGN_OR_RETURN(model->format, chat_format_of(engine.container(), *model->tokenizer));
  model->stop_ids = answer_stop_ids(*model->format, engine.eos_ids());
  model->max_text_bytes = most_text_bytes(*model->tokenizer, engine.plan().context);
  model->facts = facts_of(engine, std::move(id));
  model->disk_bytes_per_second = disk_rate(engine);
  recorder.attach(engine, model->facts.id);
  return model;
}

}  // namespace wader
