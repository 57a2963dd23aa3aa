// A first-in first-out ring of fixed capacity, for queues that never allocate while they run. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace wader {

template <typename T>
class Fifo {
 public:
  explicit Fifo(size_t capacity) : items_(capacity) {}
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void push(const T& item) {
    CHECK(size_ < items_.size());
    at(size_++) = item;
  }
  const T& front() const {
    CHECK(size_ > 0);
    return items_[head_];
  }
  T pop() {
    const T item = front();
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }
  // Drops the first item for which `pred` holds; the others keep their order.
  template <typename Pred>
  bool remove_first(Pred&& pred) {
    for (size_t i = 0; i < size_; ++i) {
      if (!pred(at(i))) continue;
      for (; i + 1 < size_; ++i) at(i) = at(i + 1);
      --size_;
      return true;
    }
    return false;
  }

 private:
  T& at(size_t i) { return items_[(head_ + i) % items_.size()]; }
  std::vector<T> items_;
  size_t head_ = 0, size_ = 0;
};

}  // namespace wader
