// The operations that `wader bench kernels` measures, each with memory of its own and run as model/
// runs it: slices over the setting's threads.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "measure/kernel_bench.h"

namespace wader {

class KernelOp {
 public:
  virtual ~KernelOp() = default;
  virtual void run(const KernelSetting& setting) = 0;  // one call
  // What one call reads at least, from memory where the case has few tokens.
  virtual uint64_t bytes(const Kernels& kernels) const = 0;
  virtual double operations() const = 0;  // multiplications and additions
};

// Of a case that check_kernel_case lets pass; scratch for `most_threads`.
Result<std::unique_ptr<KernelOp>> make_kernel_op(const KernelCase& c, int most_threads);

// Beside the products: src/measure/sequence_ops.cpp.
Result<std::unique_ptr<KernelOp>> make_attend_op(const KernelCase& c, int most_threads);
Result<std::unique_ptr<KernelOp>> make_delta_op(const KernelCase& c);

}  // namespace wader
