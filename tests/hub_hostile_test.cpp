// A hub that means harm: names that lead out of the directory, headers and listings that lie or do
// not end. Each is refused with an error that names it, and nothing is written elsewhere.
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>

#include "hub_fixture.h"

namespace wader::testing {
namespace {

class HubHostile : public HubTest {
 protected:
  // A directory like tiny-gpt-oss, to be spoilt and served as wader-tests/hostile.
  fs::path fresh_directory() {
    const fs::path directory = home() / ("served" + std::to_string(served_++));
    fs::create_directories(directory);
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"})
      fs::copy_file(directory_of("tiny-gpt-oss") / name, directory / name);
    return directory;
  }
  void serve(const fs::path& directory, Json more = Json::object()) const {
    more.update({{"id", "wader-tests/hostile"}, {"dir", directory.string()}});
    stub_->repository(more);
  }
  // Refused within a minute, nothing left or written beside.
  void expect_harmless(const std::string& text) const {
    const auto files_before = names_in(home());
    const auto begin = std::chrono::steady_clock::now();
    const RunResult result = install("hostile");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    expect_refused(result, text);
    for (const char c : result.err)
      EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20)
          << "control byte in a message";
    EXPECT_EQ(names_in(home()), files_before) << result.err;
    fs::remove_all(destination());
  }
  // Files outside the models, the destination and the caches.
  static std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      const std::string name = entry.path().lexically_relative(directory).string();
      if (!name.starts_with("out.wader") && !name.starts_with("state") &&
          !name.starts_with("cache") && !name.starts_with("models"))
        names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  int served_ = 0;
};

Json listed(const std::string& path, uint64_t bytes = 10) {
  return {{"type", "file"}, {"oid", std::string(40, 'a')}, {"size", bytes}, {"path", path}};
}

// A safetensors file: header text, then `data_bytes` zeros.
void write_safetensors(const fs::path& file, const std::string& header, uint64_t data_bytes,
                       uint64_t said_length = 0) {
  std::string bytes(8, '\0');
  const uint64_t length = said_length != 0 ? said_length : header.size();
  std::memcpy(bytes.data(), &length, 8);
  write_bytes(file, bytes + header + std::string(data_bytes, '\0'));
}

// Listed names that lead away are never opened or written. (To leave such a file aside and install
// the rest is right too.)
TEST_F(HubHostile, ListedNamesThatLeadOut) {
  for (const std::string name :
       {"../evil.json", "/tmp/wader-evil.json", "a/../../evil.json", "..\\evil.json", "", ".", "..",
        "tokenizer.json/../../evil.json", "evil\n.json", "evil\x1b[2J.json", "./tokenizer.json",
        "a//b.json"}) {
    const fs::path directory = fresh_directory();
    serve(directory, {{"tree_extra", Json::array({listed(name)})},
                      {"info", {{"siblings", Json::array({{{"rfilename", name}}})}}}});
    const auto before = names_in(home());
    const RunResult result = install("hostile");
    EXPECT_EQ(names_in(home()), before) << name << "\n" << result.err;
    EXPECT_FALSE(fs::exists("/tmp/wader-evil.json"));
    const Json requests = stub_->log()["requests"];
    for (const Json& request : requests)
      EXPECT_THAT(request["url"].get<std::string>(), Not(HasSubstr("evil"))) << name;
    if (result.exit_code != 0) expect_refused(result, "");
    fs::remove_all(destination());
  }
}

TEST_F(HubHostile, ShardNamesThatLeadOut) {
  for (const std::string name :
       {"../../x.safetensors", "/etc/passwd", "a/../../model.safetensors", "..\\x.safetensors",
        "x\n.safetensors", "missing.safetensors", "model.safetensors?x=1", "model.safetensors#x",
        "%2e%2e/x.safetensors"}) {
    SCOPED_TRACE(name);
    const fs::path directory = fresh_directory();
    const Json index = {{"metadata", Json::object()},
                        {"weight_map", {{"lm_head.weight", name}, {"x", "model.safetensors"}}}};
    write_bytes(directory / "model.safetensors.index.json", json_text(index));
    serve(directory);
    expect_harmless("model.safetensors.index.json");
  }
  for (const std::string& name :
       {std::string(5000, 'n') + ".safetensors", std::string("nul\0.safetensors", 16)}) {
    const fs::path directory = fresh_directory();
    write_bytes(directory / "model.safetensors.index.json",
                json_text({{"weight_map", {{"x", name}}}}));
    serve(directory);
    expect_harmless("model.safetensors.index.json");
  }
}

TEST_F(HubHostile, HeadersThatLie) {
  const auto tensor = [](const char* name, uint64_t from, uint64_t to) {
    return std::string("\"") + name + R"(":{"dtype":"BF16","shape":[)" +
           std::to_string((to - from) / 2) + R"(],"data_offsets":[)" + std::to_string(from) + "," +
           std::to_string(to) + "]}";
  };
  const std::vector<std::function<void(const fs::path&)>> cases = {
      [&](auto& f) { write_safetensors(f, "{}", 8, uint64_t{1} << 62); },
      [&](auto& f) { write_safetensors(f, "{}", 8, ~uint64_t{0}); },
      [&](auto& f) { write_safetensors(f, "{}", 8, 500'000'000); },
      [&](auto& f) { write_safetensors(f, "{}", 0, 3); },
      [&](auto& f) { write_bytes(f, "1234"); },
      [&](auto& f) { write_bytes(f, ""); },
      [&](auto& f) { write_safetensors(f, R"({"a":{"dtype":"BF16","shape":[4],"data_off)", 8); },
      [&](auto& f) { write_safetensors(f, std::string(100'000, '['), 8); },
      [&](auto& f) {
        write_safetensors(f, "{" + tensor("a", 0, 8) + "," + tensor("a", 8, 16) + "}", 16);
      },
      [&](auto& f) {
        write_safetensors(f, "{" + tensor("a", 0, 8) + "," + tensor("b", 4, 12) + "}", 12);
      },
      [&](auto& f) {
        write_safetensors(f, "{" + tensor("a", 0, 8) + "," + tensor("b", 800, 808) + "}", 16);
      },
      [&](auto& f) { write_safetensors(f, "{" + tensor("a", 0, uint64_t{1} << 60) + "}", 16); },
      [&](auto& f) {
        write_safetensors(
            f, R"({"a":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8);
      },
      [&](auto& f) {
        write_safetensors(f, R"({"a":{"dtype":"BF16","shape":[-4],"data_offsets":[8,0]}})", 8);
      },
  };
  for (size_t n = 0; n < cases.size(); ++n) {
    SCOPED_TRACE("case " + std::to_string(n));
    const fs::path directory = fresh_directory();
    fs::remove(directory / "model.safetensors");
    cases[n](directory / "model.safetensors");
    serve(directory);
    expect_harmless("model.safetensors");
  }
}

TEST_F(HubHostile, ListingsThatLie) {
  const fs::path directory = fresh_directory();
  const uint64_t bytes = fs::file_size(directory / "model.safetensors");
  const auto lie = [](Json fields) { return Json{{"lies", {{"model.safetensors", fields}}}}; };
  const auto lfs = [](const std::string& oid, const Json& size) {
    return Json{{"oid", oid}, {"size", size}, {"pointerSize", 130}};
  };
  const std::string some(64, 'a');
  for (const Json& wrong :
       std::vector<Json>{lie({{"size", bytes + 1}, {"lfs", lfs(some, bytes + 1)}}),
                         lie({{"size", bytes - 1}, {"lfs", lfs(some, bytes - 1)}}),
                         lie({{"size", uint64_t{1} << 62}, {"lfs", lfs(some, uint64_t{1} << 62)}}),
                         lie({{"size", -1}, {"lfs", lfs(some, -1)}}), lie({{"size", "many"}}),
                         lie({{"lfs", lfs(some, bytes)}}),  // not the SHA-256 of these bytes
                         lie({{"lfs", lfs("../../../x", bytes)}}), lie({{"path", 7}}),
                         lie({{"path", nullptr}})}) {
    SCOPED_TRACE(json_text(wrong));
    serve(directory, wrong);
    expect_harmless("");
  }
  // Twice in the list, with two sizes.
  serve(directory, {{"tree_extra", Json::array({listed("model.safetensors", 99)})}});
  expect_harmless("model.safetensors");
}

TEST_F(HubHostile, AnswersOfTheWrongKind) {
  const fs::path directory = fresh_directory();
  for (const Json& sha : std::vector<Json>{"../../x", "", 7, nullptr, std::string(5000, 'a')}) {
    SCOPED_TRACE(json_text(sha));
    serve(directory, {{"info", {{"sha", sha}}}});
    expect_harmless("");
  }
}

TEST_F(HubHostile, AListingWithoutEnd) {
  serve(fresh_directory());
  stub_->faults({{"rules",
                  {{{"on", "tree"},
                    {"fault", "next_link"},
                    {"times", -1},
                    {"location", stub_->hub() + "/api/models/wader-tests/hostile/tree/main"}}}}});
  expect_harmless("");
  EXPECT_LT(stub_->log()["count"].get<int>(), 2000);
}

TEST_F(HubHostile, NamesOnTheCommandLine) {
  for (const char* name : {"../x", "a/b/c", "wader-tests/..", "wader-tests/", "/demo", "a b/c",
                           "wader-tests/demo?x=1", "wader-tests/demo#x", "http://x/y", "-x/y"}) {
    const RunResult result = wader({"install", name, "-o", destination().string()});
    EXPECT_NE(result.exit_code, 0) << name;
    EXPECT_THAT(result.err, StartsWith("wader: error: ")) << name;
    EXPECT_FALSE(fs::exists(destination())) << name;
  }
  for (const char* revision : {"../../x", "main?x=1", "a b", "%2e%2e"}) {
    const RunResult result = install("demo", {"--revision", revision});
    EXPECT_NE(result.exit_code, 0) << revision;
    EXPECT_THAT(result.err, StartsWith("wader: error: ")) << revision;
  }
}

}  // namespace
}  // namespace wader::testing
