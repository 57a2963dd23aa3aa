// The models that whole-program tests run: installed from the checkpoints in the source tree into a
// temporary directory that goes with the process.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "tensor/dtype.h"

namespace wader::testing {

// Sanitizers make arithmetic twenty times slower: their builds run a part of the long sweeps.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A directory of this process, removed when it ends.
const std::filesystem::path& scratch_directory();

// Container of tests/data/tiny-gpt-oss or models/demo with the given trunk; installed once a
// process.
const std::filesystem::path& tiny_container(DType trunk = DType::bf16);
const std::filesystem::path& demo_container(DType trunk = DType::bf16);

// A copy of a container that the test may damage.
std::filesystem::path copy_of(const std::filesystem::path& container, const std::string& name);

// Opens, failing the test with the error's message.
std::unique_ptr<Engine> open_engine(const std::filesystem::path& container,
                                    const EngineOptions& options);
std::unique_ptr<Session> open_session(Engine& engine);

// Ids of `count` tokens, seeded, below vocab.
std::vector<TokenId> random_tokens(uint32_t count, uint32_t vocab, uint32_t seed);

}  // namespace wader::testing
