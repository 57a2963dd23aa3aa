#include "tokenizer/tokenizer_file.h"

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

// Bounds on what becomes a document tree (all but vocabulary and merges). The largest configuration
// in the field has some 50,000 values, most of them of added tokens.
constexpr size_t kMaxConfigValues = size_t{1} << 18;
constexpr size_t kMaxConfigBytes = size_t{16} << 20;  // strings and keys
constexpr size_t kMaxKeysPerObject = 1024;

// Bytes from memory or a file, in pieces.
class Input {
 public:
  virtual ~Input() = default;
  virtual bool rewind() = 0;  // to the first byte, which is then loaded

  const char* at = nullptr;
  const char* end = nullptr;  // at == end: no bytes are left
  void advance() {
    if (++at == end) refill();
  }

 protected:
  virtual void refill() = 0;
};

class MemoryInput : public Input {
 public:
  explicit MemoryInput(std::string_view text) : text_(text) {}
  bool rewind() override {
    at = text_.data();
    end = at + text_.size();
    return true;
  }

 private:
  void refill() override {}
  std::string_view text_;
};

class FileInput : public Input {
 public:
  explicit FileInput(std::FILE* file) : file_(file) {}
  bool rewind() override {
    if (std::fseek(file_, 0, SEEK_SET) != 0) return false;
    refill();
    return true;
  }

 private:
  void refill() override {
    at = buffer_;
    end = buffer_ + std::fread(buffer_, 1, sizeof buffer_, file_);
  }
  std::FILE* file_;
  char buffer_[64 * 1024];
};

struct InputIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Input* input = nullptr;  // null: the end
  reference operator*() const { return *input->at; }
  InputIterator& operator++() {
    input->advance();
    return *this;
  }
  bool at_end() const { return !input || input->at == input->end; }
  friend bool operator==(const InputIterator& a, const InputIterator& b) {
    return a.at_end() == b.at_end();
  }
  friend bool operator!=(const InputIterator& a, const InputIterator& b) { return !(a == b); }
};

// Receives the parser's events. Vocabulary and merges go to the tables, the rest to nlohmann's tree
// builder.
class FileSax : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Tree = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  enum class Pass : uint8_t { everything, merges_only };
  FileSax(TokenizerFile& file, Pass pass) : Tree(file.config, false), file_(file), pass_(pass) {}

  std::optional<Error> problem;
  bool has_vocabulary = false;
  bool has_merges = false;
  bool merges_came_first = false;  // and were skipped: a second pass must read them

  bool null() {
    return scalar([&] { return Tree::null(); });
  }
  bool boolean(bool value) {
    return scalar([&] { return Tree::boolean(value); });
  }
  bool number_integer(Json::number_integer_t value) {
    return scalar([&] { return Tree::number_integer(value); });
  }
  bool number_float(Json::number_float_t value, const std::string& text) {
    return scalar([&] { return Tree::number_float(value, text); });
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (section_ == Section::vocabulary) return vocabulary_id(value);
    return scalar([&] { return Tree::number_unsigned(value); });
  }
  bool string(std::string& value) {
    if (section_ == Section::merges) return merge_text(value);
    return scalar([&] { return count_bytes(value) && Tree::string(value); });
  }
  bool key(std::string& name);
  bool start_object(size_t size);
  bool end_object();
  bool start_array(size_t size);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    return problem ? false : fail(corrupt_error("not valid JSON at byte {}", position));
  }

 private:
  enum class Section : uint8_t { config, vocabulary, merges, skipped };

  bool fail(Error error) {
    problem = std::move(error);
    return false;
  }
  // The value in hand, where a scalar of no particular meaning stands.
  template <typename ToTree>
  bool scalar(ToTree to_tree) {
    switch (section_) {
      case Section::config:
        if (opens_ != Section::config) return wrong_section_type();
        if (pass_ == Pass::merges_only) return true;
        return count_value() && to_tree();
      case Section::vocabulary:
        return fail(corrupt_error("model.vocab: the id of {} is not a whole number from 0 to {}",
                                  quote(vocabulary_text_), kMaxTokenId));
      case Section::merges:
        return bad_merge();
      case Section::skipped:
        return true;
    }
    return false;
  }
  bool wrong_section_type() {
    return fail(corrupt_error("model.{}", opens_ == Section::vocabulary ? "vocab is not an object"
                                                                        : "merges is not a list"));
  }
  bool bad_merge() {
    return fail(
        corrupt_error("model.merges: item {} is neither [\"left\", \"right\"] nor \"left right\"",
                      file_.merges.size()));
  }
  bool count_value() {
    if (++values_ <= kMaxConfigValues) return true;
    return fail(
        corrupt_error("more than {} values beside vocabulary and merges", kMaxConfigValues));
  }
  bool count_bytes(const std::string& text) {
    config_bytes_ += text.size();
    if (config_bytes_ <= kMaxConfigBytes) return true;
    return fail(corrupt_error("more than {} bytes beside vocabulary and merges", kMaxConfigBytes));
  }
  bool descend() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return fail(corrupt_error("nested deeper than {} levels", kMaxJsonDepth));
  }
  bool enter_section();
  bool leave_section();
  bool vocabulary_id(uint64_t id);
  bool merge_text(std::string_view text);
  bool merge_part(std::string_view text);
  bool finish_merge();

  TokenizerFile& file_;
  const Pass pass_;
  Section section_ = Section::config;
  Section opens_ = Section::config;          // the section that the next value opens; config: none
  int depth_ = 0;                            // open objects and lists
  int section_depth_ = 0;                    // depth_ inside the section's own object or list
  bool in_model_ = false;                    // the last key of the outermost object was "model"
  std::vector<std::set<std::string>> keys_;  // of the open objects of the configuration
  size_t values_ = 0;
  size_t config_bytes_ = 0;
  std::string vocabulary_text_;
  uint32_t merge_ids_[2] = {};
  int merge_parts_ = 0;
  std::string scratch_;
};

bool FileSax::key(std::string& name) {
  if (section_ == Section::vocabulary) {
    vocabulary_text_.swap(name);
    return true;
  }
  if (section_ == Section::skipped) return true;
  if (keys_.back().size() == kMaxKeysPerObject)
    return fail(corrupt_error("an object has more than {} keys", kMaxKeysPerObject));
  if (!keys_.back().insert(name).second)
    return fail(corrupt_error("key {} occurs twice in one object", quote(name)));
  if (depth_ == 1) in_model_ = name == "model";
  if (depth_ == 2 && in_model_) {
    opens_ = name == "vocab"    ? Section::vocabulary
             : name == "merges" ? Section::merges
                                : Section::config;
    if (opens_ != Section::config) return true;
  }
  return pass_ == Pass::merges_only || (count_bytes(name) && Tree::key(name));
}

bool FileSax::enter_section() {
  section_ = opens_;
  opens_ = Section::config;
  section_depth_ = depth_;
  if (section_ == Section::vocabulary) {
    has_vocabulary = true;
    if (pass_ == Pass::merges_only) section_ = Section::skipped;
  } else {
    has_merges = true;
    merges_came_first = pass_ == Pass::everything && !has_vocabulary;
    if (merges_came_first) section_ = Section::skipped;
  }
  return true;
}

bool FileSax::leave_section() {
  if (section_ == Section::vocabulary) {
    if (Status sealed = file_.vocabulary.seal(); !sealed.ok())
      return fail(std::move(sealed).error());
  }
  section_ = Section::config;
  return true;
}

bool FileSax::start_object(size_t size) {
  if (!descend()) return false;
  if (section_ == Section::skipped) return true;
  if (section_ == Section::merges) return bad_merge();
  if (section_ == Section::vocabulary) return scalar([] { return false; });
  if (opens_ == Section::vocabulary) return enter_section();
  if (opens_ == Section::merges) return wrong_section_type();
  keys_.emplace_back();
  return pass_ == Pass::merges_only || (count_value() && Tree::start_object(size));
}

bool FileSax::end_object() {
  const bool closes_section = section_ != Section::config && depth_ == section_depth_;
  --depth_;
  if (closes_section) return leave_section();
  if (section_ == Section::skipped) return true;
  keys_.pop_back();
  return pass_ == Pass::merges_only || Tree::end_object();
}

bool FileSax::start_array(size_t size) {
  if (!descend()) return false;
  switch (section_) {
    case Section::skipped:
      return true;
    case Section::vocabulary:
      return scalar([] { return false; });
    case Section::merges:
      merge_parts_ = 0;
      return depth_ == section_depth_ + 1 || bad_merge();
    case Section::config:
      break;
  }
  if (opens_ == Section::merges) return enter_section();
  if (opens_ == Section::vocabulary) return wrong_section_type();
  return pass_ == Pass::merges_only || (count_value() && Tree::start_array(size));
}

bool FileSax::end_array() {
  const bool closes_section = section_ != Section::config && depth_ == section_depth_;
  --depth_;
  if (closes_section) return leave_section();
  if (section_ == Section::skipped) return true;
  if (section_ == Section::merges) return finish_merge();
  return pass_ == Pass::merges_only || Tree::end_array();
}

bool FileSax::vocabulary_id(uint64_t id) {
  if (id > kMaxTokenId) return scalar([] { return false; });
  Status added = file_.vocabulary.add(vocabulary_text_, static_cast<uint32_t>(id));
  return added.ok() || fail(std::move(added).error());
}

bool FileSax::merge_text(std::string_view text) {
  if (depth_ > section_depth_) return merge_part(text);
  merge_parts_ = 0;
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    return bad_merge();
  return merge_part(text.substr(0, space)) && merge_part(text.substr(space + 1)) && finish_merge();
}

bool FileSax::merge_part(std::string_view text) {
  if (merge_parts_ == 2) return bad_merge();
  scratch_.clear();
  std::optional<uint32_t> id;
  if (append_spelt_bytes(text, scratch_)) id = file_.vocabulary.find(scratch_);
  if (!id) {
    return fail(corrupt_error("model.merges: item {} names {}, which is not in model.vocab",
                              file_.merges.size(), quote(text)));
  }
  merge_ids_[merge_parts_++] = *id;
  return true;
}

bool FileSax::finish_merge() {
  if (merge_parts_ != 2) return bad_merge();
  const auto [left, right] = merge_ids_;
  scratch_ = file_.vocabulary.bytes(left);
  scratch_ += file_.vocabulary.bytes(right);
  const std::optional<uint32_t> result = file_.vocabulary.find(scratch_);
  if (!result) {
    return fail(corrupt_error("model.merges: item {} makes {}, which is not in model.vocab",
                              file_.merges.size(), quote(scratch_)));
  }
  file_.merges.push_back({left, right, *result});
  return true;
}

Result<TokenizerFile> parse(Input& input) {
  TokenizerFile file;
  const auto run = [&input](FileSax& sax) {
    return Json::sax_parse(InputIterator{&input}, InputIterator{}, &sax);
  };
  FileSax sax(file, FileSax::Pass::everything);
  if (!input.rewind()) return errno_error(errno, "cannot read from the start");
  if (!run(sax)) return sax.problem ? *std::move(sax.problem) : corrupt_error("not valid JSON");
  if (!sax.has_vocabulary) return corrupt_error("model.vocab is missing");
  if (!sax.has_merges) return corrupt_error("model.merges is missing");
  if (sax.merges_came_first) {
    FileSax again(file, FileSax::Pass::merges_only);
    if (!input.rewind()) return errno_error(errno, "cannot read a second time");
    if (!run(again))
      return again.problem ? *std::move(again.problem) : corrupt_error("not valid JSON");
  }
  return file;
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text) {
  MemoryInput input(text);
  return parse(input);
}

Result<TokenizerFile> read_tokenizer_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (!file) return errno_error(errno, path);
  const auto input = std::make_unique<FileInput>(file.get());
  errno = 0;
  Result<TokenizerFile> result = parse(*input);
  // A read error looks like an early end to the parser; it is the better reason.
  if (std::ferror(file.get())) return errno_error(errno ? errno : EIO, path);
  if (!result.ok()) return std::move(result).error().within(path);
  return result;
}

}  // namespace wader
