#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>

#include "base/error.h"
#include "kernels/integer.h"

namespace wader {
namespace {

using Matmul = decltype(Kernels::matmul);
using QuantiseRow = decltype(Kernels::quantise_row);

Kernels with_integer_products(std::string_view name, Matmul matmul, QuantiseRow quantise_row) {
  Kernels kernels = kRefKernels;
  kernels.name = name;
  kernels.matmul = matmul;
  kernels.quantise_row = quantise_row;
  return kernels;
}

#if defined(__x86_64__)
// Not among what every compiler's __builtin_cpu_supports knows.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

// Linux lets a process have the tiles' 8 KiB of registers only when it asks, once for all its
// threads; it refuses where a signal stack of this process is too small for them.
bool may_use_amx() {
#if defined(__linux__)
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // CPUID 7.0, EDX
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0)
    return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

// Those that run on this CPU, the slowest first.
class Table {
 public:
  Table() {
    add(kRefKernels);
    static const Kernels kPortable =
        with_integer_products("portable", portable::matmul, portable::quantise_row);
    add(kPortable);
#if defined(__x86_64__)
    // The compiler's test covers the operating system's part, saving the wide registers, too.
    __builtin_cpu_init();
    static const Kernels kAvx2 = with_integer_products("avx2", avx2::matmul, avx2::quantise_row);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) add(kAvx2);
    static const Kernels kAvx512 =
        with_integer_products("avx512", avx512::matmul, avx512::quantise_row);
    static const Kernels kAmx = with_integer_products("amx", amx::matmul, avx512::quantise_row);
    if (has_avx512()) add(kAvx512);
    if (has_avx512() && may_use_amx()) add(kAmx);
#endif
  }
  std::span<const Kernels* const> all() const {
    return {all_.data(), count_};
  }

 private:
  void add(const Kernels& kernels) {
    all_[count_++] = &kernels;
  }
  std::array<const Kernels*, 5> all_{};
  size_t count_ = 0;
};

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const Table kTable;
  return kTable.all();
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
