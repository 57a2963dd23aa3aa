#include "tokenizer/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "tokenizer/split_pattern.h"

namespace wader {
namespace {

// How the work is bounded. A match is first searched in a window of kWindowBytes; only when it
// needs to see what follows the window (PCRE2_PARTIAL_HARD tells) is the window doubled, and its
// size taken from a budget of kWorkPerByte bytes per byte of text. Patterns in the field spend at
// most about 12 per byte: two or three matches look at one run, each through windows that sum to at
// most four times its length. Patterns that look far ahead for each short match, quadratic in all,
// use the budget up. Within a window, backtracking is bounded by PCRE2's match limit, which JIT and
// interpreter both count per step back: the field's patterns need about 2 per byte, nested repeats
// soon more than kStepsPerByte.
constexpr size_t kWindowBytes = 512;
constexpr size_t kWorkPerByte = 64;
constexpr size_t kStepsPerByte = 16;
constexpr size_t kMinSteps = 1000;
constexpr uint32_t kHeapLimitKiB = 32 * 1024;    // interpreter's backtracking frames
constexpr uint32_t kDepthLimit = 100'000;        // interpreter's nested backtracking
constexpr size_t kJitStackMinBytes = 32 * 1024;  // the field's patterns need less than 1 KiB
constexpr size_t kJitStackMaxBytes = 1024 * 1024;

template <typename T, void (*release)(T*)>
struct Release {
  void operator()(T* object) const { release(object); }
};
using Code = std::unique_ptr<pcre2_code, Release<pcre2_code, pcre2_code_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Release<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Release<pcre2_match_context, pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Release<pcre2_jit_stack, pcre2_jit_stack_free>>;

std::string pcre2_message(int code) {
  PCRE2_UCHAR message[160] = {};
  pcre2_get_error_message(code, message, sizeof message);
  return reinterpret_cast<const char*>(message);
}

}  // namespace

struct Splitter::Impl {
  Code code;
};

struct PieceCursor::Scratch {
  MatchData data;
  MatchContext context;
  JitStack jit_stack;
};

Splitter::Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

Result<Splitter> Splitter::create(std::string_view pattern, Engine engine) {
  ASSIGN_OR_RETURN(const std::string translated, translate_split_pattern(pattern));
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr));
  if (!impl->code)
    return unsupported_error("split pattern: PCRE2 refuses it: {}", pcre2_message(code));
  uint32_t matches_empty = 0;
  pcre2_pattern_info(impl->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty) return unsupported_error("split pattern can match an empty string");
  // Without JIT (hardened kernels forbid executable memory) matching is some five times slower,
  // with the same result.
  if (engine == Engine::automatic)
    pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  Splitter splitter;
  splitter.impl_ = std::move(impl);
  return splitter;
}

PieceCursor::PieceCursor(const Splitter& splitter) : splitter_(splitter.impl_.get()) {
  if (!splitter_) return;
  scratch_ = std::make_unique<Scratch>();
  scratch_->data.reset(pcre2_match_data_create_from_pattern(splitter_->code.get(), nullptr));
  scratch_->context.reset(pcre2_match_context_create(nullptr));
  if (!scratch_->data || !scratch_->context) {
    fail(over_budget_error("no memory to split text"));
    return;
  }
  pcre2_set_heap_limit(scratch_->context.get(), kHeapLimitKiB);
  pcre2_set_depth_limit(scratch_->context.get(), kDepthLimit);
  // Null without JIT, and then not needed; null for want of memory falls back to 32 KiB of the
  // thread's stack.
  scratch_->jit_stack.reset(pcre2_jit_stack_create(kJitStackMinBytes, kJitStackMaxBytes, nullptr));
  if (scratch_->jit_stack)
    pcre2_jit_stack_assign(scratch_->context.get(), nullptr, scratch_->jit_stack.get());
}

PieceCursor::~PieceCursor() = default;

void PieceCursor::start(std::string_view text) {
  text_ = text;
  at_ = match_begin_ = match_end_ = 0;
  work_left_ = kWorkPerByte * (text.size() + kWindowBytes);
}

bool PieceCursor::fail(Error error) {
  status_ = std::move(error);
  return false;
}

bool PieceCursor::next(std::string_view& piece) {
  if (!status_.ok() || at_ == text_.size()) return false;
  size_t end = text_.size();
  if (splitter_) {
    const Found found = match_end_ > at_ ? Found::match : search();
    if (found == Found::error) return false;
    if (found == Found::match) end = match_begin_ > at_ ? match_begin_ : match_end_;
  }
  piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

PieceCursor::Found PieceCursor::search() {
  size_t from = at_;
  size_t window = kWindowBytes;
  while (from < text_.size()) {
    size_t end = text_.size() - from <= window ? text_.size() : from + window;
    while (end < text_.size() && (static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80) ++end;
    const bool is_last = end == text_.size();
    const size_t steps = std::min<size_t>(kMinSteps + kStepsPerByte * (end - from), UINT32_MAX);
    pcre2_set_match_limit(scratch_->context.get(), static_cast<uint32_t>(steps));
    const int code = pcre2_match(splitter_->code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()),
                                 end, from, PCRE2_NO_UTF_CHECK | (is_last ? 0 : PCRE2_PARTIAL_HARD),
                                 scratch_->data.get(), scratch_->context.get());
    if (code > 0) {
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch_->data.get());
      match_begin_ = span[0];
      match_end_ = span[1];
      return Found::match;
    }
    if (code == PCRE2_ERROR_PARTIAL) {
      window *= 2;
      if (window > work_left_) {
        fail(unsupported_error("split pattern looks too far ahead for each piece of this text"));
        return Found::error;
      }
      work_left_ -= window;
    } else if (code == PCRE2_ERROR_NOMATCH) {
      from = end;
      window = kWindowBytes;
    } else {
      fail(unsupported_error("split pattern needs too much work on this text: {}",
                             pcre2_message(code)));
      return Found::error;
    }
  }
  return Found::nothing;
}

}  // namespace wader
