// load_worker MODEL MEMORY_BYTES SECONDS ACTIONS SEED GOVERNOR DIRECT: mixed load on one engine, in
// a process of its own that a test puts at a limit. Turns of a chat, answers made again, other
// answers, long prompts, new chats, in an order that hangs on SEED alone, until SECONDS or ACTIONS
// are over. GOVERNOR and DIRECT as the flags of these names. One JSON line on stdout; exit 1 with a
// message on errors.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/memory_watch.h"
#include "engine/engine.h"

namespace {

using namespace wader;

class Load {
 public:
  Load(Engine& engine, Session& session, uint64_t seed)
      : engine_(engine), session_(session), random_(seed) {}

  // One action; its ids go into the digest. False, and the message in `error`, when it failed.
  bool act(std::string& error) {
    const uint32_t context = engine_.plan().context;
    const uint32_t kind = static_cast<uint32_t>(random_() % 10);
    if (prompt_.empty() || kind == 0 || prompt_.size() + 150 > context) {
      prompt_ = tokens(8 + random_() % 40);
    } else if (kind == 1) {
      prompt_ = tokens(context / 3 + random_() % (context / 2));
    } else if (kind <= 3) {  // the same answer again: it must be the same
      const std::vector<TokenId> before = answer_;
      if (!answer(error)) return false;
      ++regenerations_;
      differences_ += answer_ != before;
      return true;
    } else if (kind > 5) {  // kinds 4 and 5: another answer to the same
      prompt_.insert(prompt_.end(), answer_.begin(), answer_.end());
      const auto more = tokens(4 + random_() % 50);
      prompt_.insert(prompt_.end(), more.begin(), more.end());
    }
    seed_ = random_();
    most_ = static_cast<uint32_t>(4 + random_() % 60);
    return answer(error);
  }

  Json report(uint64_t actions) const {
    const EngineStats stats = engine_.stats();
    return {{"actions", actions},
            {"digest", digest_to_hex(digest_.digest())},
            {"regenerations", regenerations_},
            {"differences", differences_},
            {"tokens", stats.prefill_tokens + stats.decode_tokens},
            {"expert_misses", stats.experts.misses},
            {"peak_rss_bytes", process_memory().peak_resident_bytes},
            {"swapped_bytes", swapped_bytes_},
            {"slots", stats.slots},
            {"usable_slots", stats.usable_slots},
            {"fewest_slots", fewest_slots_},
            {"pool_shrinks", stats.pool_shrinks},
            {"pool_growths", stats.pool_growths}};
  }

 private:
  std::vector<TokenId> tokens(uint64_t count) {
    std::vector<TokenId> ids(count);
    for (TokenId& id : ids)
      id = static_cast<TokenId>(random_() % engine_.container().spec().vocab_rows);
    return ids;
  }

  bool answer(std::string& error) {
    GenerateOptions options;
    options.sampling.temperature = 0.9;
    options.sampling.seed = seed_;
    options.max_tokens = most_;
    const auto out = session_.generate(prompt_, options);
    if (!out.ok()) {
      error = out.error().message;
      return false;
    }
    answer_ = out->ids;
    digest_.update(std::as_bytes(std::span(answer_)));
    swapped_bytes_ = std::max(swapped_bytes_, memory_.read().swapped_bytes);
    fewest_slots_ = std::min(fewest_slots_, engine_.stats().usable_slots);
    return true;
  }

  Engine& engine_;
  Session& session_;
  std::mt19937_64 random_;
  std::vector<TokenId> prompt_, answer_;
  uint64_t seed_ = 0;
  MemoryWatch memory_;
  uint32_t most_ = 0;
  Xxh3Stream digest_;
  uint64_t regenerations_ = 0, differences_ = 0, swapped_bytes_ = 0;
  uint32_t fewest_slots_ = ~0u;
};

int fail(const std::string& message) {
  std::fprintf(stderr, "load_worker: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8)
    return fail("usage: load_worker MODEL MEMORY_BYTES SECONDS ACTIONS SEED GOVERNOR DIRECT");
  EngineOptions options;
  options.memory_bytes = std::strtoull(argv[2], nullptr, 10);
  options.context = 1024;
  options.threads = 2;
  options.governor = std::string(argv[6]) == "on";
  options.direct = argv[7];
  const double seconds = std::strtod(argv[3], nullptr);
  const uint64_t actions = std::strtoull(argv[4], nullptr, 10);
  auto engine = Engine::open(argv[1], options);
  if (!engine.ok()) return fail(engine.error().message);
  auto session = (*engine)->new_session();
  if (!session.ok()) return fail(session.error().message);
  Load load(**engine, **session, std::strtoull(argv[5], nullptr, 10));
  const auto start = std::chrono::steady_clock::now();
  uint64_t done = 0;
  std::string error;
  const auto elapsed_seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // From a slow disk too some actions of each kind.
  while (done < actions && (done < 10 || elapsed_seconds() < seconds)) {
    if (!load.act(error)) return fail(error);
    ++done;
  }
  std::printf("%s\n", load.report(done).dump().c_str());
  return 0;
}
