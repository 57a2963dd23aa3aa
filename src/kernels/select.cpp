#include <array>

#include "base/error.h"
#include "kernels/ops.h"

namespace wader {

std::span<const Kernels* const> available_kernels() {
  static constexpr std::array<const Kernels*, 1> kAll = {&kRefKernels};
  return kAll;
}

Result<const Kernels*> select_kernels(std::string_view name) {
  const auto all = available_kernels();
  if (name == "auto") return all.back();
  std::string names;
  for (const Kernels* kernels : all) {
    if (kernels->name == name) return kernels;
    names += names.empty() ? "" : ", ";
    names += kernels->name;
  }
  return invalid_argument_error("kernels '{}' are not available here; choose auto or one of: {}",
                                name, names);
}

}  // namespace wader
