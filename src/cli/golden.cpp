#include "cli/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace wader {
namespace {

constexpr uint64_t kMaxIds = 1u << 24;

// "short.logits" → "short" and "logits".
std::pair<std::string, std::string> split_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

struct OutputKind {
  enum { logits, hidden, router_indices, router_weights } what;
  uint64_t last_rows;  // 0: all
};

std::optional<OutputKind> output_kind(std::string name) {
  OutputKind kind = {OutputKind::logits, 0};
  if (const size_t at = name.rfind("_last"); at != name.npos) {
    const char* const end = name.data() + name.size();
    const auto [stop, code] = std::from_chars(name.data() + at + 5, end, kind.last_rows);
    if (code != std::errc{} || stop != end || kind.last_rows == 0) return std::nullopt;
    name.resize(at);
  }
  if (name == "logits" || name == "all") return kind;
  if (name == "hidden")
    kind.what = OutputKind::hidden;
  else if (name == "router_indices")
    kind.what = OutputKind::router_indices;
  else if (name == "router_weights")
    kind.what = OutputKind::router_weights;
  else
    return std::nullopt;
  return kind;
}

struct Output {
  std::string name;
  OutputKind kind;
  uint64_t rows;  // compared, the last ones of the sequence
};

struct Sequence {
  std::vector<int32_t> ids;
  std::vector<Output> outputs;
};

std::string shape_text(std::span<const uint64_t> shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

Status check_shape(const SafetensorsTensor& tensor, DType dtype,
                   const std::vector<uint64_t>& want) {
  if (tensor.dtype == dtype && tensor.shape == want) return {};
  return corrupt_error("{} is {} {}, this model needs {} {}: the file belongs to another one",
                       tensor.name, tensor.format_dtype, shape_text(tensor.shape),
                       dtype_name(dtype), shape_text(want));
}

Status check_output(const SafetensorsTensor& tensor, const ArchitectureSpec& spec,
                    const Output& output) {
  const uint64_t layers = spec.layer_count();
  switch (output.kind.what) {
    case OutputKind::logits:
      return check_shape(tensor, DType::f32, {output.rows, spec.vocab_rows});
    case OutputKind::hidden:
      return check_shape(tensor, DType::f32, {layers + 1, output.rows, spec.hidden});
    case OutputKind::router_indices:
      return check_shape(tensor, DType::i32, {layers, output.rows, spec.experts_per_token});
    case OutputKind::router_weights:
      return check_shape(tensor, DType::f32, {layers, output.rows, spec.experts_per_token});
  }
  UNREACHABLE("no such case");
}

Result<Sequence> read_sequence(const GoldenFile& golden, const std::string& prefix,
                               const ArchitectureSpec& spec) {
  Sequence sequence;
  ASSIGN_OR_RETURN(sequence.ids, golden.ids(prefix + ".input_ids"));
  for (const auto& [name, tensor] : golden.tensors()) {
    const auto [owner, what] = split_name(name);
    const std::optional<OutputKind> kind = output_kind(what);
    if (owner != prefix || !kind) continue;
    const uint64_t rows = kind->last_rows ? kind->last_rows : sequence.ids.size();
    if (rows > sequence.ids.size()) {
      return corrupt_error("{} has more rows than {}.input_ids has ids", name, prefix);
    }
    sequence.outputs.push_back({name, *kind, rows});
    RETURN_IF_ERROR(check_output(tensor, spec, sequence.outputs.back()));
  }
  return sequence;
}

// The last `rows` of each plane of (planes, total, width).
template <typename T>
std::vector<T> last_rows(const std::vector<T>& all, uint64_t planes, uint64_t total, uint64_t rows,
                         uint64_t width) {
  CHECK(all.size() == planes * total * width && rows <= total);
  std::vector<T> out;
  out.reserve(planes * rows * width);
  for (uint64_t plane = 0; plane < planes; ++plane) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>((plane + 1) * total * width);
    out.insert(out.end(), end - static_cast<std::ptrdiff_t>(rows * width), end);
  }
  return out;
}

GoldenLine difference_line(const Output& output, uint64_t compared, double error, double limit) {
  return {output.name, "max |d|", compared, error, limit, ""};
}

// Weights stand in the router's order. Where two nearly equal experts swapped places, the weights
// of equal ids are compared: `got` reordered as `want_ids` stand.
std::vector<float> align_weights(const std::vector<float>& got, const std::vector<int32_t>& got_ids,
                                 const std::vector<int32_t>& want_ids, size_t k) {
  CHECK(got.size() == got_ids.size() && got.size() == want_ids.size());
  std::vector<float> aligned = got;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t row = i / k * k;
    for (size_t j = row; j < row + k; ++j) {
      if (got_ids[j] == want_ids[i]) aligned[i] = got[j];
    }
  }
  return aligned;
}

struct Captured {
  const Capture& capture;
  uint64_t total;  // rows
};

Result<GoldenLine> compare_indices(const GoldenFile& golden, const ArchitectureSpec& spec,
                                   const Output& output, Captured captured) {
  const uint32_t k = spec.experts_per_token;
  ASSIGN_OR_RETURN(const auto want, golden.ids(output.name));
  const auto got = last_rows(captured.capture.router_indices, spec.layer_count(), captured.total,
                             output.rows, k);
  const auto wrong = static_cast<double>(differing_sets(got, want, k));
  return GoldenLine{output.name, "sets differ", spec.layer_count() * output.rows, wrong, 0, ""};
}

Result<GoldenLine> compare_weights(const GoldenFile& golden, const ArchitectureSpec& spec,
                                   const Output& output, Captured captured, double limit) {
  const uint64_t layers = spec.layer_count(), k = spec.experts_per_token;
  ASSIGN_OR_RETURN(const auto want, golden.values(output.name, 0, layers * output.rows * k));
  auto got = last_rows(captured.capture.router_weights, layers, captured.total, output.rows, k);
  std::string ids_name = output.name;
  ids_name.replace(ids_name.rfind("router_weights"), std::string_view("router_weights").size(),
                   "router_indices");
  if (golden.tensors().contains(ids_name)) {
    ASSIGN_OR_RETURN(const auto want_ids, golden.ids(ids_name));
    const auto got_ids =
        last_rows(captured.capture.router_indices, layers, captured.total, output.rows, k);
    got = align_weights(got, got_ids, want_ids, k);
  }
  return difference_line(output, layers * output.rows, max_abs_difference(got, want), limit);
}

Result<GoldenLine> compare_hidden(const GoldenFile& golden, const ArchitectureSpec& spec,
                                  const Output& output, Captured captured, double relative_limit) {
  const uint64_t planes = uint64_t{spec.layer_count()} + 1;
  ASSIGN_OR_RETURN(const auto want,
                   golden.values(output.name, 0, planes * output.rows * spec.hidden));
  const auto got =
      last_rows(captured.capture.hidden, planes, captured.total, output.rows, spec.hidden);
  double scale = 1;
  for (const float x : want) scale = std::max(scale, std::fabs(double{x}));
  GoldenLine line = difference_line(output, planes * output.rows, max_abs_difference(got, want),
                                    relative_limit * scale);
  line.detail = fmt::format("largest value {:.3g}", scale);
  return line;
}

Result<GoldenLine> compare_captured(const GoldenFile& golden, const ArchitectureSpec& spec,
                                    const Output& output, Captured captured,
                                    const GoldenLimits& limits) {
  switch (output.kind.what) {
    case OutputKind::router_indices:
      return compare_indices(golden, spec, output, captured);
    case OutputKind::router_weights:
      return compare_weights(golden, spec, output, captured, limits.router_weights);
    case OutputKind::hidden:
      return compare_hidden(golden, spec, output, captured, limits.logits);
    case OutputKind::logits:
      break;
  }
  UNREACHABLE("no such case");  // compared row by row, in check_sequence
}

Status check_sequence(const GoldenFile& golden, const ArchitectureSpec& spec,
                      const Sequence& sequence, Session& session, const GoldenLimits& limits,
                      const std::function<void(GoldenLine)>& add) {
  const uint64_t total = sequence.ids.size();
  std::vector<double> errors(sequence.outputs.size(), 0);
  uint64_t first = total;  // of the rows whose logits are wanted
  bool captured = false;
  for (const Output& output : sequence.outputs) {
    if (output.kind.what == OutputKind::logits) first = std::min(first, total - output.rows);
    captured = captured || output.kind.what != OutputKind::logits;
  }
  Status read;  // of the reference rows, inside the callback
  const auto on_logits = [&](uint32_t position, std::span<const float> logits) {
    for (size_t i = 0; i < sequence.outputs.size() && read.ok(); ++i) {
      const Output& output = sequence.outputs[i];
      const uint64_t begin = total - output.rows;
      if (output.kind.what != OutputKind::logits || position < begin) continue;
      auto want = golden.values(output.name, (position - begin) * spec.vocab_rows, spec.vocab_rows);
      if (!want.ok()) {
        read = std::move(want).error();
      } else {
        errors[i] = std::max(errors[i], max_abs_difference(logits, *want));
      }
    }
  };
  Capture capture;
  RETURN_IF_ERROR(session.evaluate(sequence.ids, static_cast<uint32_t>(std::min(first, total - 1)),
                                   on_logits, captured ? &capture : nullptr));
  RETURN_IF_ERROR(std::move(read));
  for (size_t i = 0; i < sequence.outputs.size(); ++i) {
    const Output& output = sequence.outputs[i];
    if (output.kind.what == OutputKind::logits) {
      add(difference_line(output, output.rows, errors[i], limits.logits));
      continue;
    }
    ASSIGN_OR_RETURN(GoldenLine line,
                     compare_captured(golden, spec, output, {capture, total}, limits));
    add(std::move(line));
  }
  return {};
}

Result<GoldenLine> check_greedy(const GoldenFile& golden, const std::string& prefix,
                                Session& session, const GoldenLimits& limits) {
  ASSIGN_OR_RETURN(const auto prompt, golden.ids(prefix + ".prompt"));
  ASSIGN_OR_RETURN(const auto want, golden.ids(prefix + ".continuation"));
  std::vector<float> margin(want.size(), std::numeric_limits<float>::infinity());
  if (golden.tensors().contains(prefix + ".margin")) {
    ASSIGN_OR_RETURN(margin, golden.values(prefix + ".margin", 0, want.size()));
  }
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = static_cast<uint32_t>(want.size());
  ASSIGN_OR_RETURN(const Generation generation, session.generate(prompt, options));
  const GreedyComparison result = compare_greedy(generation.ids, want, margin, limits.tie_margin);
  GoldenLine line{prefix, "ids differ", result.compared, 0, 0, ""};
  if (result.compared < want.size()) {
    line.detail = fmt::format("choice {} of {} is nearly a tie", result.compared + 1, want.size());
  }
  if (result.first_wrong >= 0) {
    const auto at = static_cast<size_t>(result.first_wrong);
    line.error = 1;
    line.detail =
        fmt::format("choice {} is {}, not {}, margin {:.2g}", at + 1,
                    at < generation.ids.size() ? std::to_string(generation.ids[at]) : "missing",
                    want[at], margin[at]);
  }
  return line;
}

}  // namespace

bool GoldenReport::ok() const {
  return std::all_of(lines.begin(), lines.end(), [](const GoldenLine& line) { return line.ok(); });
}

Result<GoldenFile> GoldenFile::open(const std::filesystem::path& path) {
  GoldenFile golden;
  ASSIGN_OR_RETURN(golden.file_, File::open(path, File::Mode::read));
  ASSIGN_OR_RETURN(auto tensors, read_safetensors_header(golden.file_));
  for (SafetensorsTensor& tensor : tensors) {
    std::string name = tensor.name;
    golden.tensors_.emplace(std::move(name), std::move(tensor));
  }
  return golden;
}

Result<std::vector<int32_t>> GoldenFile::ids(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return not_found_error("{} holds no {}", file_.path(), name);
  const SafetensorsTensor& tensor = found->second;
  if (tensor.dtype != DType::i32 || tensor.bytes / 4 > kMaxIds || tensor.bytes == 0) {
    return corrupt_error("{}: {} must be a list of i32 ids", file_.path(), name);
  }
  std::vector<int32_t> ids(tensor.bytes / 4);
  RETURN_IF_ERROR(file_.read_at(tensor.offset_bytes, std::as_writable_bytes(std::span(ids))));
  return ids;
}

Result<std::vector<float>> GoldenFile::values(const std::string& name, uint64_t first,
                                              uint64_t count) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return not_found_error("{} holds no {}", file_.path(), name);
  const SafetensorsTensor& tensor = found->second;
  if (tensor.dtype != DType::f32 || first > tensor.bytes / 4 || count > tensor.bytes / 4 - first) {
    return corrupt_error("{}: {} must be f32 with {} values at least", file_.path(), name,
                         first + count);
  }
  std::vector<float> values(count);
  RETURN_IF_ERROR(
      file_.read_at(tensor.offset_bytes + first * 4, std::as_writable_bytes(std::span(values))));
  return values;
}

uint32_t GoldenFile::context_tokens() const {
  uint64_t longest = 1;
  for (const auto& [name, tensor] : tensors_) {
    const auto [prefix, what] = split_name(name);
    uint64_t tokens = 0;
    if (what == "input_ids") tokens = tensor.bytes / 4;
    if (what == "prompt") {
      const auto continuation = tensors_.find(prefix + ".continuation");
      tokens =
          (tensor.bytes + (continuation != tensors_.end() ? continuation->second.bytes : 0)) / 4;
    }
    longest = std::max(longest, tokens);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(longest, kMaxIds));
}

uint64_t GoldenFile::capture_bytes(const ArchitectureSpec& spec) const {
  uint64_t most = 0;
  for (const auto& [name, tensor] : tensors_) {
    const auto [prefix, what] = split_name(name);
    const std::optional<OutputKind> kind = output_kind(what);
    const auto ids = tensors_.find(prefix + ".input_ids");
    if (!kind || kind->what == OutputKind::logits || ids == tensors_.end()) continue;
    const uint64_t tokens = std::min<uint64_t>(ids->second.bytes / 4, kMaxIds);
    const uint64_t hidden = (uint64_t{spec.layer_count()} + 1) * tokens * spec.hidden * 4;
    const uint64_t router = uint64_t{spec.layer_count()} * tokens * spec.experts_per_token * 8;
    most = std::max(most, 3 * (hidden + router));  // captured, the last rows of it, the reference
  }
  return most + uint64_t{spec.vocab_rows} * 8;
}

Result<GoldenReport> check_golden(const GoldenFile& golden, const ArchitectureSpec& spec,
                                  Session& session, const GoldenLimits& limits,
                                  const std::function<void(const GoldenLine&)>& on_line) {
  GoldenReport report;
  const auto add = [&](GoldenLine line) {
    if (on_line) on_line(line);
    report.lines.push_back(std::move(line));
  };
  for (const auto& [name, tensor] : golden.tensors()) {
    const auto [prefix, what] = split_name(name);
    const bool has_ids = golden.tensors().contains(prefix + ".input_ids");
    const bool has_prompt = golden.tensors().contains(prefix + ".prompt");
    if (what == "input_ids") {
      ASSIGN_OR_RETURN(const Sequence sequence, read_sequence(golden, prefix, spec));
      RETURN_IF_ERROR(check_sequence(golden, spec, sequence, session, limits, add));
    } else if (what == "prompt") {
      ASSIGN_OR_RETURN(GoldenLine line, check_greedy(golden, prefix, session, limits));
      add(std::move(line));
    } else if (!(has_ids && output_kind(what)) &&
               !(has_prompt && (what == "continuation" || what == "margin"))) {
      report.not_compared.push_back(name);
    }
  }
  if (report.lines.empty())
    return corrupt_error("the golden file holds nothing that can be compared");
  return report;
}

double max_abs_difference(std::span<const float> got, std::span<const float> want) {
  CHECK(got.size() == want.size());
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(double{got[i]} - double{want[i]});
    if (!(difference <= most)) most = difference;  // a NaN gets in and is seen below
    if (std::isnan(most)) return std::numeric_limits<double>::infinity();
  }
  return most;
}

uint64_t differing_sets(std::span<const int32_t> got, std::span<const int32_t> want, uint32_t k) {
  CHECK(got.size() == want.size() && k > 0 && got.size() % k == 0);
  uint64_t wrong = 0;
  for (size_t row = 0; row < got.size(); row += k) {
    std::vector<int32_t> a(got.begin() + static_cast<std::ptrdiff_t>(row),
                           got.begin() + static_cast<std::ptrdiff_t>(row + k));
    std::vector<int32_t> b(want.begin() + static_cast<std::ptrdiff_t>(row),
                           want.begin() + static_cast<std::ptrdiff_t>(row + k));
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    wrong += a != b;
  }
  return wrong;
}

GreedyComparison compare_greedy(std::span<const int32_t> got, std::span<const int32_t> want,
                                std::span<const float> margin, double tie_margin) {
  CHECK(margin.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (margin[i] < tie_margin) return {i, -1};
    if (i >= got.size() || got[i] != want[i]) return {i + 1, static_cast<int64_t>(i)};
  }
  return {want.size(), -1};
}

}  // namespace wader
