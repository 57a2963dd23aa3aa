// How experts may be read, and which way to take: the back end of the read queue, and O_DIRECT or
// the page cache. Measured rates decide (read_probe.h makes them); this file has the rule, and the
// text in which rates are kept beside a model. Pure but for make_queue().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/read_queue.h"

namespace wader {

enum class ReadEngine : uint8_t { threads, uring };
std::string_view read_engine_name(ReadEngine engine);  // "threads", "uring": values of --io
std::optional<ReadEngine> read_engine_from_name(std::string_view name);

struct ReadMethod {
  ReadEngine engine;
  bool direct;
  bool operator==(const ReadMethod&) const = default;
};

// In order of preference: io_uring takes no threads of ours, and O_DIRECT no page cache, whose
// copies cost 0.1 s of a CPU for each GB.
constexpr std::array<ReadMethod, 4> kReadMethods = {{{ReadEngine::uring, true},
                                                     {ReadEngine::threads, true},
                                                     {ReadEngine::uring, false},
                                                     {ReadEngine::threads, false}}};
std::string read_method_text(ReadMethod method);  // "io_uring, O_DIRECT"

// The queue of an engine for reads of about `read_bytes`; an error where the system refuses it.
Result<std::unique_ptr<ReadQueue>> make_queue(ReadEngine engine, uint32_t capacity,
                                              uint64_t read_bytes);

struct MeasuredMethod {
  ReadMethod method;
  double bytes_per_second;
};

// Of `candidates`, in order of preference and at least one: the first that is not beaten by more
// than a tenth. One without a rate has none to show, and is taken only where none has.
ReadMethod best_method(std::span<const ReadMethod> candidates,
                       std::span<const MeasuredMethod> rates);

// Rates and what they hold for: when anything of the latter changed, they are measured again.
struct ReadRates {
  std::string container;    // its identity, in hex
  std::string device;       // "254:0"
  std::string file_system;  // statfs' magic number, in hex
  std::string kernel;       // "6.1.0-18-amd64"
  std::string measured_at;  // "2025-01-31T12:00:00Z"
  std::vector<MeasuredMethod> rates;

  bool same_place(const ReadRates& other) const {
    return container == other.container && device == other.device &&
           file_system == other.file_system && kernel == other.kernel;
  }
  const MeasuredMethod* find(ReadMethod method) const;
};

// What the rates of a container in `directory` would hold for, without any rate.
Result<ReadRates> read_place(const std::string& directory, std::string_view container);

std::string read_rates_to_text(const ReadRates& rates);
// Takes untrusted text.
Result<ReadRates> parse_read_rates(std::string_view text);
constexpr uint64_t kMaxReadRatesBytes = 16 << 10;

}  // namespace wader
