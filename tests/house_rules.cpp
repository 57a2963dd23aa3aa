#include "house_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>

namespace wader::house {
namespace {

namespace fs = std::filesystem;

constexpr size_t kColumnsMax = 110;
constexpr size_t kLinesMax = 600;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Offset of `word` as a whole word at or after `from`.
size_t find_word(std::string_view text, std::string_view word, size_t from = 0) {
  for (size_t at = text.find(word, from); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
      return at;
  }
  return text.npos;
}

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t`/");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t`/") - begin + 1));
}

// Files of the given folders of `root` with one of the endings, relative and sorted.
std::vector<fs::path> files_of(const fs::path& root, std::initializer_list<const char*> folders,
                               std::initializer_list<std::string_view> endings) {
  std::vector<fs::path> files;
  for (const char* folder : folders) {
    if (!fs::is_directory(root / folder)) continue;
    for (auto it = fs::recursive_directory_iterator(root / folder);
         it != fs::recursive_directory_iterator(); ++it) {
      const std::string name = it->path().filename().string();
      if (name == "node_modules" || name == "data" || name == "corpus")
        it.disable_recursion_pending();
      const bool wanted =
          std::any_of(endings.begin(), endings.end(), [&](auto e) { return name.ends_with(e); });
      if (wanted && it->is_regular_file()) files.push_back(fs::relative(it->path(), root));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> cpp_files(const fs::path& root) {
  return files_of(root, {"src", "tests", "fuzz", "bench"}, {".cpp", ".h"});
}

std::string at(const fs::path& file, size_t line_index, std::string_view message) {
  return file.string() + ":" + std::to_string(line_index + 1) + ": " + std::string(message);
}

// The path of an #include "…" line.
std::optional<std::string> quoted_include(std::string_view line) {
  const size_t hash = line.find_first_not_of(" \t");
  if (hash == line.npos || line[hash] != '#') return std::nullopt;
  const size_t word = find_word(line, "include", hash + 1);
  const size_t open = line.find('"', hash);
  if (word == line.npos || open == line.npos || open < word) return std::nullopt;
  const size_t close = line.find('"', open + 1);
  if (close == line.npos) return std::nullopt;
  return std::string(line.substr(open + 1, close - open - 1));
}

// Columns as a reader counts them: UTF-8 characters, not bytes.
size_t columns_of(std::string_view line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Where the literal that opens with the quote at `open` ends, one past its closing quote.
size_t literal_end(std::string_view source, size_t open) {
  const char quote = source[open];
  if (quote == '"' && open > 0 && source[open - 1] == 'R') {
    const size_t bracket = source.find('(', open);
    if (bracket == source.npos) return source.size();
    const std::string close = ")" + std::string(source.substr(open + 1, bracket - open - 1)) + "\"";
    const size_t end = source.find(close, bracket);
    return end == source.npos ? source.size() : end + close.size();
  }
  for (size_t i = open + 1; i < source.size(); ++i) {
    if (source[i] == '\\')
      ++i;
    else if (source[i] == quote)
      return i + 1;
    else if (source[i] == '\n')
      return i;
  }
  return source.size();
}

}  // namespace

std::string code_only(std::string_view source) {
  std::string code(source);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, code.size()); ++i)
      if (code[i] != '\n') code[i] = ' ';
  };
  for (size_t i = 0; i < source.size();) {
    if (source.substr(i, 2) == "//") {
      const size_t end = std::min(source.find('\n', i), source.size());
      blank(i, end);
      i = end;
    } else if (source.substr(i, 2) == "/*") {
      const size_t close = source.find("*/", i + 2);
      const size_t end = close == source.npos ? source.size() : close + 2;
      blank(i, end);
      i = end;
    } else if (source[i] == '"' || (source[i] == '\'' && (i == 0 || !is_word(source[i - 1])))) {
      // A quote after a word character is a digit separator, 1'000 (prefixed literals such as u8'x'
      // lose nothing).
      const size_t end = literal_end(source, i);
      blank(i + 1, end - 1);
      i = end;
    } else {
      ++i;
    }
  }
  return code;
}

std::map<std::string, std::string> parse_ranks(std::string_view architecture_md) {
  std::map<std::string, std::string> ranks;
  for (const std::string& line : lines_of(architecture_md)) {
    if (!line.starts_with("| ") || line.find("/` |") == line.npos) continue;
    const size_t second = line.find('|', 1);
    const size_t third = line.find('|', second + 1);
    std::string rank = trimmed(std::string_view(line).substr(1, second - 1));
    if (rank.empty() || rank.size() > 2 || !std::isdigit(static_cast<unsigned char>(rank[0])))
      continue;
    rank.resize(2, ' ');
    ranks[trimmed(std::string_view(line).substr(second + 1, third - second - 1))] = rank;
  }
  return ranks;
}

std::map<std::string, std::set<std::string>> parse_links(std::string_view cmakelists) {
  std::map<std::string, std::set<std::string>> links;
  constexpr std::string_view kCall = "wader_folder(";
  std::string text;
  for (const std::string& line : lines_of(cmakelists))
    text += line.substr(0, line.find('#')) + "\n";
  for (size_t call = text.find(kCall); call != text.npos; call = text.find(kCall, call + 1)) {
    const size_t open = call + kCall.size();
    std::istringstream words(text.substr(open, text.find(')', open) - open));
    std::string name, word, section;
    words >> name;
    auto& linked = links[name];
    while (words >> word) {
      if (word == "DEPS" || word == "LIBS" || word == "THREADED")
        section = word;
      else if (section == "DEPS")
        linked.insert(word);
    }
  }
  return links;
}

Findings check_layers(const fs::path& root) {
  Findings findings;
  const auto ranks = parse_ranks(read_file(root / "docs/architecture.md"));
  const auto links = parse_links(read_file(root / "CMakeLists.txt"));
  if (ranks.empty()) return {"docs/architecture.md: no table of ranks found"};

  for (const auto& [folder, linked] : links) {
    for (const std::string& dep : linked) {
      if (!ranks.contains(folder) || !ranks.contains(dep) || ranks.at(dep) >= ranks.at(folder))
        findings.push_back("CMakeLists.txt: " + folder + " is linked with " + dep +
                           ", which has no lower rank");
    }
  }
  for (const auto& entry : fs::directory_iterator(root / "src")) {
    const std::string folder = entry.path().filename().string();
    if (!entry.is_directory())
      findings.push_back("src/" + folder + ": stands in no folder");
    else if (!ranks.contains(folder))
      findings.push_back("src/" + folder + ": has no rank in docs/architecture.md");
  }
  for (const fs::path& file : files_of(root, {"src"}, {".cpp", ".h"})) {
    const std::string folder = std::next(file.begin())->string();
    const auto lines = lines_of(read_file(root / file));
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto include = quoted_include(lines[i]);
      if (!include) continue;
      const std::string target = include->substr(0, include->find('/'));
      if (target == folder) continue;
      if (!ranks.contains(target) || include->find('/') == include->npos) {
        findings.push_back(
            at(file, i, "includes \"" + *include + "\", which names no folder of src/"));
      } else if (ranks.contains(folder) && ranks.at(target) >= ranks.at(folder)) {
        findings.push_back(
            at(file, i, folder + "/ may not include " + target + "/, which has no lower rank"));
      } else if (!links.contains(folder) || !links.at(folder).contains(target)) {
        findings.push_back(at(file, i,
                              "includes " + target + "/, which is not in the DEPS of " + folder +
                                  " in CMakeLists.txt"));
      }
    }
  }
  return findings;
}

Findings check_library_calls(const fs::path& root) {
  // fmt::format_to and snprintf write into buffers and are fine; these write to the terminal or end
  // the process.
  constexpr std::array kForbidden = {"printf", "fprintf",   "vprintf", "vfprintf",   "dprintf",
                                     "puts",   "fputs",     "putchar", "perror",     "cout",
                                     "cerr",   "clog",      "exit",    "_exit",      "_Exit",
                                     "abort",  "terminate", "println", "quick_exit", "syslog"};
  Findings findings;
  for (const fs::path& file : files_of(root, {"src"}, {".cpp", ".h"})) {
    const std::string name = file.generic_string();
    if (name.starts_with("src/cli/") || name == "src/base/check.cpp" || name.ends_with("_test.cpp"))
      continue;
    const auto lines = lines_of(code_only(read_file(root / file)));
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string& line = lines[i];
      if (line.find("<iostream>") != line.npos)
        findings.push_back(at(file, i, "library code includes <iostream>"));
      if (line.find("fmt::print") != line.npos)
        findings.push_back(at(file, i, "library code calls fmt::print"));
      for (const std::string_view word : kForbidden) {
        const size_t found = find_word(line, word);
        if (found == line.npos) continue;
        const size_t next = line.find_first_not_of(' ', found + word.size());
        const bool stream = word == "cout" || word == "cerr" || word == "clog";
        if (stream || (next != line.npos && line[next] == '('))
          findings.push_back(
              at(file, i, "library code uses " + std::string(word) + "; return a Result instead"));
      }
    }
  }
  return findings;
}

Findings check_layout(const fs::path& root, const std::map<std::string, std::string>& long_files) {
  Findings findings;
  for (const fs::path& file : cpp_files(root)) {
    const std::string name = file.generic_string();
    const std::string text = read_file(root / file);
    const auto lines = lines_of(text);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].find('\t') != std::string::npos) findings.push_back(at(file, i, "has a tab"));
      if (columns_of(lines[i]) > kColumnsMax && lines[i].find("://") == std::string::npos)
        findings.push_back(
            at(file, i, "is longer than " + std::to_string(kColumnsMax) + " columns"));
    }
    if (!text.empty() && text.back() != '\n')
      findings.push_back(name + ": does not end with a newline");
    if (lines.size() > kLinesMax && !long_files.contains(name)) {
      findings.push_back(name + ": has " + std::to_string(lines.size()) +
                         " lines; split it, or give a reason in " + "tests/house_test.cpp");
    }
    if (name.starts_with("src/") && name.ends_with(".h") && !lines.empty()) {
      if (!lines[0].starts_with("//"))
        findings.push_back(name + ": does not open with what it is, in a comment");
      const bool guarded = std::any_of(lines.begin(), lines.end(),
                                       [](auto& line) { return line == "#pragma once"; });
      if (!guarded) findings.push_back(name + ": has no #pragma once");
    }
  }
  for (const auto& [name, reason] : long_files) {
    if (reason.empty()) findings.push_back(name + ": may be long, but the list gives no reason");
    if (lines_of(read_file(root / name)).size() <= kLinesMax)
      findings.push_back(name + ": is not long any more; take it off the list");
  }
  return findings;
}

Findings check_type_names(const fs::path& root) {
  static const std::regex kNamespace(R"(^namespace ([\w:]+) \{)");
  static const std::regex kType(R"(^(?:enum class|enum|struct|class|union) (\w+)[^;]*\{)");
  Findings findings;
  std::map<std::string, std::string> first;  // "wader::Answer" → where it is defined
  for (const fs::path& file : files_of(root, {"src"}, {".h"})) {
    const std::string code = code_only(read_file(root / file));
    const auto lines = lines_of(code);
    std::string scope;
    for (size_t i = 0; i < lines.size(); ++i) {
      std::smatch match;
      const std::string line(lines[i]);
      if (std::regex_search(line, match, kNamespace)) scope = match.str(1) + "::";
      if (!std::regex_search(line, match, kType)) continue;
      const auto [known, added] = first.emplace(scope + match.str(1), file.generic_string());
      if (!added)
        findings.push_back(
            at(file, i, "defines " + known->first + ", as " + known->second + " does"));
    }
  }
  return findings;
}

Findings check_unfinished(const fs::path& root) {
  // Spelt in two parts, so that this file does not find itself.
  const std::array<std::string, 3> marks = {std::string("TO") + "DO", std::string("FIX") + "ME",
                                            std::string("XX") + "X"};
  Findings findings;
  auto files =
      files_of(root, {"src", "tests", "fuzz", "bench", "tools", "cmake", "docs"},
               {".cpp", ".h", ".cmake", ".txt", ".sh", ".md", ".js", ".mjs", ".css", ".html"});
  for (const char* name : {"CMakeLists.txt", "Makefile", "README.md", "CONTRIBUTING.md"})
    files.emplace_back(name);
  for (const fs::path& file : files) {
    const auto lines = lines_of(read_file(root / file));
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const std::string& mark : marks) {
        if (find_word(lines[i], mark) != std::string::npos)
          findings.push_back(
              at(file, i, "leaves work marked " + mark + "; finish it or file an issue"));
      }
    }
  }
  return findings;
}

Findings check_links(const fs::path& root) {
  Findings findings;
  auto files = files_of(root, {"docs"}, {".md"});
  for (const char* name : {"README.md", "CONTRIBUTING.md"}) files.emplace_back(name);
  for (const fs::path& file : files) {
    const auto lines = lines_of(read_file(root / file));
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string& line = lines[i];
      for (size_t open = line.find("]("); open != line.npos; open = line.find("](", open + 1)) {
        const size_t close = line.find(')', open);
        if (close == line.npos) break;
        std::string target = line.substr(open + 2, close - open - 2);
        target = target.substr(0, target.find('#'));
        if (target.empty() || target.find(':') != target.npos) continue;
        if (!fs::exists((root / file).parent_path() / target))
          findings.push_back(at(file, i, "links to " + target + ", which is not there"));
      }
    }
  }
  return findings;
}

}  // namespace wader::house
