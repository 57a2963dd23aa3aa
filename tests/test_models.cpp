#include "test_models.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <random>

#include "install/install.h"

namespace wader::testing {
namespace {

struct Scratch {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("wader_test_" + std::to_string(::getpid()));
  Scratch() { std::filesystem::create_directories(path); }
  ~Scratch() { std::filesystem::remove_all(path); }
};

}  // namespace

const std::filesystem::path& scratch_directory() {
  static const Scratch scratch;
  return scratch.path;
}

std::string test_name(std::string text) {
  for (char& c : text)
    if (c == '-' || c == '.') c = '_';
  return text;
}

const std::filesystem::path& installed(const std::filesystem::path& checkpoint, Formats formats) {
  static std::map<std::string, std::filesystem::path> done;
  const auto name_of = [](const std::optional<DType>& dtype) {
    return dtype ? std::string(dtype_name(*dtype)) : "auto";
  };
  std::string name = checkpoint.filename().string();
  name += '-';
  name += name_of(formats.trunk);
  name += '-';
  name += name_of(formats.experts);
  const auto found = done.find(name);
  if (found != done.end()) return found->second;
  InstallOptions options;
  options.source = checkpoint;
  options.destination = scratch_directory() / (name + ".wader");
  options.trunk = formats.trunk;
  options.experts = formats.experts;
  const auto report = install(options, {});
  if (!report.ok()) {
    ADD_FAILURE() << report.error().message;
    std::abort();  // nothing below could mean anything
  }
  return done[name] = options.destination;
}

const std::filesystem::path& fixture_container(const std::string& name, Formats formats) {
  if (!formats.experts && name != "tiny-gpt-oss") formats.experts = DType::bf16;
  return installed(std::filesystem::path(WADER_SOURCE_DIR) / "tests/data" / name, formats);
}

const std::filesystem::path& tiny_container(DType trunk) {
  return fixture_container("tiny-gpt-oss", {.trunk = trunk});
}
const std::filesystem::path& demo_container(DType trunk) {
  return installed(std::filesystem::path(WADER_SOURCE_DIR) / "models/demo", {.trunk = trunk});
}

std::filesystem::path copy_of(const std::filesystem::path& container, const std::string& name) {
  const std::filesystem::path copy = scratch_directory() / (name + ".wader");
  std::filesystem::remove_all(copy);
  std::filesystem::copy(container, copy, std::filesystem::copy_options::recursive);
  return copy;
}

EngineOptions session_options(uint32_t sessions, uint32_t context, uint32_t chunk) {
  EngineOptions options;
  options.memory_bytes = 4ull << 30;  // sanitizers keep freed memory, which counts
  options.context = context;
  options.chunk = chunk;
  options.threads = 2;
  options.sessions = sessions;
  return options;
}

std::unique_ptr<Engine> open_engine(const std::filesystem::path& container,
                                    const EngineOptions& options) {
  auto engine = Engine::open(container, options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return std::move(engine).value();
}

std::unique_ptr<Session> open_session(Engine& engine) {
  auto session = engine.new_session();
  if (!session.ok()) {
    ADD_FAILURE() << session.error().message;
    return nullptr;
  }
  return std::move(session).value();
}

std::vector<TokenId> random_tokens(uint32_t count, uint32_t vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % vocab);
  return tokens;
}

}  // namespace wader::testing
