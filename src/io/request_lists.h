// The reads of a queue that have not started: a list for each class, demand first. Not thread-safe.
#pragma once

#include "io/fifo.h"
#include "io/read_queue.h"

namespace wader {

class RequestLists {
 public:
  explicit RequestLists(size_t capacity) : demand_(capacity), ahead_(capacity) {}

  bool empty() const { return demand_.empty() && ahead_.empty(); }
  void push(const ReadRequest& request, ReadClass read_class) {
    (read_class == ReadClass::demand ? demand_ : ahead_).push(request);
  }
  // Of the request that front() and pop() give.
  ReadClass front_class() const { return demand_.empty() ? ReadClass::ahead : ReadClass::demand; }
  const ReadRequest& front() const { return demand_.empty() ? ahead_.front() : demand_.front(); }
  ReadRequest pop() { return demand_.empty() ? ahead_.pop() : demand_.pop(); }
  bool remove(uint64_t tag) {
    const auto is_it = [tag](const ReadRequest& request) { return request.tag == tag; };
    return ahead_.remove_first(is_it) || demand_.remove_first(is_it);
  }

 private:
  Fifo<ReadRequest> demand_, ahead_;
};

}  // namespace wader
