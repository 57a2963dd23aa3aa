// The models that whole-program tests run: installed from the checkpoints in the source tree into a
// temporary directory that goes with the process.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/sanitized_testing.h"
#include "engine/engine.h"
#include "tensor/dtype.h"

namespace wader::testing {

// A directory of this process, removed when it ends.
const std::filesystem::path& scratch_directory();

// One checkpoint of each family, folders of tests/data.
inline constexpr const char* kFixtures[] = {"tiny-gpt-oss", "tiny-qwen3-moe", "tiny-qwen3-next",
                                            "tiny-qwen3.5-moe"};
// "tiny-qwen3.5-moe" → "tiny_qwen3_5_moe", as names of tests want it.
std::string test_name(std::string text);

struct Formats {
  std::optional<DType> trunk = DType::bf16;
  std::optional<DType> experts = {};  // nothing: mxfp4 as it is, else bf16
};

// A checkpoint installed in the given formats, once a process.
const std::filesystem::path& installed(const std::filesystem::path& checkpoint, Formats formats);
const std::filesystem::path& fixture_container(const std::string& name, Formats formats = {});
const std::filesystem::path& tiny_container(DType trunk = DType::bf16);  // tiny-gpt-oss
const std::filesystem::path& demo_container(DType trunk = DType::bf16);  // models/demo

// A copy of a container that the test may damage.
std::filesystem::path copy_of(const std::filesystem::path& container, const std::string& name);

// Room for all experts, and for several sessions.
EngineOptions session_options(uint32_t sessions, uint32_t context, uint32_t chunk);

// Opens, failing the test with the error's message.
std::unique_ptr<Engine> open_engine(const std::filesystem::path& container,
                                    const EngineOptions& options);
std::unique_ptr<Session> open_session(Engine& engine);

// Ids of `count` tokens, seeded, below vocab.
std::vector<TokenId> random_tokens(uint32_t count, uint32_t vocab, uint32_t seed);

}  // namespace wader::testing
