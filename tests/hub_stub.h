// StubHub: a hub of models on this machine (tests/hub/stub_hub.mjs), as a child process that ends
// with this one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/json.h"

namespace wader::testing {

class StubHub {
 public:
  // Repositories, as ORG/NAME=DIRECTORY. Check ok() before use; without node there is no stub.
  explicit StubHub(const std::vector<std::string>& repositories);
  ~StubHub();
  StubHub(const StubHub&) = delete;
  StubHub& operator=(const StubHub&) = delete;

  bool ok() const { return !hub_.empty(); }
  const std::string& hub() const { return hub_; }  // what HF_ENDPOINT is set to
  const std::string& cdn() const { return cdn_; }  // another host's origin
  // The hub by https with a certificate that nobody signed; empty where there is no openssl.
  const std::string& tls() const { return tls_; }

  // What was asked since clear(); fields as in tests/hub/request_log.mjs.
  Json log() const { return get("/__stub/log"); }
  void clear() const { post("/__stub/clear", Json::object()); }
  // A script or a schedule of tests/hub/faults.mjs; {} for none.
  void faults(const Json& plan) const { post("/__stub/faults", plan); }
  // Adds a repository or pushes to it; fields as in tests/hub/repository.mjs.
  void repository(const Json& description) const { post("/__stub/repos", description); }
  void options(const Json& changes) const { post("/__stub/options", changes); }
  std::string commit_of(const std::string& id) const;

 private:
  Json get(const std::string& path) const;
  void post(const std::string& path, const Json& body) const;
  std::string exchange(const std::string& request) const;

  pid_t pid_ = -1;
  int input_ = -1;  // its standard input: the stub ends when this closes
  std::string hub_, cdn_, tls_;
};

// Bytes of weights (*.safetensors) in a log: all that were sent, and those sent more than once.
struct WeightBytes {
  uint64_t sent = 0, again = 0;
};
WeightBytes weight_bytes(const Json& log);

}  // namespace wader::testing
