// ByteSource: something of a known size whose bytes can be read at any place: an open file
// (io/file.h), or a file of the hub (install/hub_tree.h). Whoever checks headers or moves weights
// takes these, so that local and remote sources go the same way. Errors name path(). read_at may be
// called from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace wader {

// What tells one state of a source from another: its size, and when it was changed (files) or what
// it says it is (a digest or ETag).
struct SourceStamp {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  std::string tag = {};

  bool operator==(const SourceStamp&) const = default;
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual const std::string& path() const = 0;  // for messages
  virtual Result<uint64_t> size() const = 0;
  // Fills `into` from `offset`, or fails.
  virtual Status read_at(uint64_t offset, std::span<std::byte> into) const = 0;
  virtual Result<SourceStamp> stamp() const = 0;
  // A hint that these bytes are wanted next.
  virtual void will_read(uint64_t /*offset*/, uint64_t /*bytes*/) const {}

 protected:
  ByteSource() = default;
  ByteSource(const ByteSource&) = default;
  ByteSource& operator=(const ByteSource&) = default;
};

}  // namespace wader
