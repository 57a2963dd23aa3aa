// For tests: a Session of which nothing is asked. They override what they do ask.
#pragma once

#include "base/error.h"
#include "engine/engine.h"

namespace wader {

class IdleSession : public Session {
 public:
  const std::vector<TokenId>& tokens() const override { return none_; }
  Result<Generation> generate(std::span<const TokenId>, const GenerateOptions&) override {
    return unasked();
  }
  Result<uint32_t> begin(std::span<const TokenId>, const GenerateOptions&) override {
    return unasked();
  }
  Result<GenerationStep> step() override { return unasked(); }
  uint32_t reusable(std::span<const TokenId>) const override { return 0; }
  uint32_t copy_prefix(const Session&, std::span<const TokenId>) override { return 0; }
  Status evaluate(std::span<const TokenId>, uint32_t,
                  const std::function<void(uint32_t, std::span<const float>)>&, Capture*) override {
    return unasked();
  }
  void reset() override {}
  Status save(const std::filesystem::path&, std::string_view) override { return unasked(); }
  Result<std::string> load(const std::filesystem::path&, uint64_t) override { return unasked(); }

 private:
  static Error unasked() { return unsupported_error("this test's session was not to be asked"); }
  std::vector<TokenId> none_;
};

}  // namespace wader
