#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>

#include "base/error.h"
#include "kernels/float_backends.h"
#include "kernels/integer.h"

namespace wader {
namespace {

using Matmul = void (*)(const MatmulArgs&);
using QuantiseRow = decltype(Kernels::quantise_row);

bool is_integer_product(const MatmulArgs& args) {
  const DType dtype = args.w.format.dtype;
  return args.xq != nullptr &&
         (dtype == DType::mxfp4 || dtype == DType::affine4 || dtype == DType::affine8);
}

template <Matmul kInteger, Matmul kPlain>
void matmul(const MatmulArgs& args) {
  is_integer_product(args) ? kInteger(args) : kPlain(args);
}

Kernels table(std::string_view name, Matmul matmul, QuantiseRow quantise_row,
              void (*set_float_ops)(Kernels&)) {
  Kernels kernels{};
  kernels.name = name;
  kernels.matmul = matmul;
  kernels.quantise_row = quantise_row;
  set_float_ops(kernels);
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

// Those that run on this CPU; the last is auto's.
class Table {
 public:
  Table() {
    add(kRefKernels);
    static const Kernels kPortable =
        table("portable", matmul<portable::matmul, portable::plain_matmul>, portable::quantise_row,
              portable::set_float_ops);
    add(kPortable);
#if defined(__x86_64__)
    // The compiler's test covers the operating system's part, saving the wide registers, too.
    __builtin_cpu_init();
    const bool has_avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (has_avx2) {
      static const Kernels kAvx2 = table("avx2", matmul<avx2::matmul, avx2::plain_matmul>,
                                         avx2::quantise_row, avx2::set_float_ops);
      add(kAvx2);
    }
    if (has_avx2 && has_avx512()) {
      static const Kernels kAvx512 = table("avx512", matmul<avx512::matmul, avx512::plain_matmul>,
                                           avx512::quantise_row, avx512::set_float_ops);
      add(kAvx512);
      // 1.2 to 1.6 times as fast as avx512 at 16 to 512 tokens (docs/results.md), and it at fewer.
      if (may_use_amx()) {
        static const Kernels kAmx = table("amx", matmul<amx::matmul, avx512::plain_matmul>,
                                          avx512::quantise_row, avx512::set_float_ops);
        add(kAmx);
      }
    }
#elif defined(__aarch64__)
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) {
      static const Kernels kNeon = table("neon", matmul<neon::matmul, neon::plain_matmul>,
                                         neon::quantise_row, neon::set_float_ops);
      add(kNeon);
    }
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
