// wader-bench-kernels: matmul of every back end that runs here, in the shapes of released models,
// against the memory's read bandwidth and the 8-bit peak, all taken in turns: on a machine that
// drifts only what was measured side by side can be compared.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "io/aligned_buffer.h"
#include "kernels/ops.h"
#include "peak.h"

namespace wader {
namespace {

constexpr uint64_t kReadBytes = 256u << 20;     // of a bandwidth sample: far more than any L3
constexpr uint64_t kWeightsBytes = 256u << 20;  // copies of a matrix in turn come from memory
constexpr double kSampleSeconds = 0.004;

struct Case {
  DType dtype;
  uint32_t rows, cols, tokens;
};

struct Settings {
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int rounds = 9;
  std::string only;  // of the format's name
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Random {
  uint64_t state = 0x9e3779b97f4a7c15u;
  uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
};

AlignedBuffer allocate(uint64_t bytes) {
  auto buffer = AlignedBuffer::allocate(bytes);
  if (!buffer.ok()) {
    fmt::print(stderr, "{}\n", buffer.error().message);
    std::exit(1);
  }
  return std::move(buffer).value();
}

// Codes at random; scales and biases small and ordinary.
void fill_matrix(const MatrixView& m, std::byte* to, Random& random) {
  const RowBytes row = *row_bytes(m.format, m.cols);
  const uint64_t codes = row.codes * m.rows, total = row.total() * m.rows;
  for (uint64_t i = 0; i + 8 <= codes; i += 8) {
    const uint64_t bits = random();
    std::memcpy(to + i, &bits, 8);
  }
  if (m.format.dtype == DType::mxfp4) {
    for (uint64_t i = codes; i < total; ++i) to[i] = static_cast<std::byte>(118 + random() % 8);
    return;
  }
  for (uint64_t i = codes; i < total; i += 2) {
    const auto bits = static_cast<uint16_t>(0x3c00 + (random() & 0x80ff));  // ± 2^-7 … 2^-5
    std::memcpy(to + i, &bits, 2);
  }
}

// One case's memory, and what each back end needs to run it.
class Bench {
 public:
  Bench(const Case& c, ThreadPool& threads) : c_(c), threads_(threads) {
    matrix_bytes_ = *matrix_bytes(c.dtype, c.rows, c.cols);
    stride_ = (matrix_bytes_ + 4095) / 4096 * 4096;
    copies_ = c.tokens > 4 ? 1 : std::max<uint64_t>(1, kWeightsBytes / stride_);
    weights_ = allocate(stride_ * copies_);
    Random random;
    fill_matrix(view(0), weights_.data(), random);
    for (uint64_t i = 1; i < copies_; ++i)
      std::memcpy(weights_.data() + i * stride_, weights_.data(), matrix_bytes_);
    x_.resize(static_cast<size_t>(c.tokens) * c.cols);
    for (float& value : x_) value = static_cast<float>(random() % 2001) / 1000 - 1;
    y_.resize(static_cast<size_t>(c.tokens) * c.rows);
    codes_.resize(x_.size());
    scales_.resize(x_.size() / kActivationBlock);
    sums_ = scales_;
    code_sums_.resize(scales_.size());
    scratch_ = allocate(static_cast<uint64_t>(threads.size()) * scratch_floats() * sizeof(float));
  }

  // As model/linear.h does it: quantise, then a slice of rows a thread.
  void multiply(const Kernels& k) {
    const MatrixView w = view(next_++ % copies_);
    const QuantisedRows xq = {codes_.data(),     scales_.data(), sums_.data(),
                              code_sums_.data(), c_.cols,        c_.cols / kActivationBlock};
    if (k.quantise_row != nullptr)
      threads_.parallel_for(c_.tokens, 8, [&](ThreadPool::Slice slice) {
        for (auto t = static_cast<size_t>(slice.begin); t < static_cast<size_t>(slice.end); ++t)
          k.quantise_row(codes_.data() + t * xq.codes_stride, scales_.data() + t * xq.blocks_stride,
                         sums_.data() + t * xq.blocks_stride,
                         code_sums_.data() + t * xq.blocks_stride, x_.data() + t * c_.cols,
                         c_.cols);
      });
    threads_.parallel_for(c_.rows, 16, [&](ThreadPool::Slice slice) {
      auto* scratch = reinterpret_cast<float*>(scratch_.data());
      k.matmul({.y = y_.data(),
                .y_stride = c_.rows,
                .x = x_.data(),
                .x_stride = c_.cols,
                .tokens = c_.tokens,
                .w = w,
                .bias = nullptr,
                .row_begin = static_cast<uint32_t>(slice.begin),
                .row_end = static_cast<uint32_t>(slice.end),
                .scratch = scratch + static_cast<size_t>(slice.worker) * scratch_floats(),
                .xq = k.quantise_row != nullptr ? &xq : nullptr});
    });
  }

  uint64_t bytes() const { return matrix_bytes_; }
  double operations() const { return 2.0 * c_.rows * c_.cols * c_.tokens; }

 private:
  size_t scratch_floats() const { return matmul_scratch_floats(c_.cols); }
  MatrixView view(uint64_t copy) const {
    return matrix_view(c_.dtype, c_.rows, c_.cols,
                       {weights_.data() + copy * stride_, static_cast<size_t>(matrix_bytes_)});
  }

  Case c_;
  ThreadPool& threads_;
  uint64_t matrix_bytes_, stride_, copies_, next_ = 0;
  AlignedBuffer weights_, scratch_;
  std::vector<float> x_, y_, scales_, sums_;
  std::vector<int8_t> codes_;
  std::vector<int32_t> code_sums_;
};

class Machine {
 public:
  explicit Machine(ThreadPool& threads) : threads_(threads), memory_(allocate(kReadBytes)) {
    std::memset(memory_.data(), 1, kReadBytes);
    for (const Kernels* k : available_kernels()) vnni_ = vnni_ || k->name == "avx512";
  }
  double bytes_per_second() {
    return kReadBytes / seconds_of([&] {
             threads_.parallel_for(kReadBytes / 64, 64, [&](ThreadPool::Slice slice) {
               sink_ = read_all(memory_.data() + slice.begin * 64,
                                static_cast<size_t>(slice.end - slice.begin) * 64);
             });
           });
  }
  double operations_per_second() {
    constexpr uint64_t kIterations = 400'000;  // of 16 instructions: a few ms
    if (!vnni_) return 0;
    const double seconds = seconds_of([&] {
      threads_.parallel_for(threads_.size(), 1,
                            [&](ThreadPool::Slice) { operations_ = run_vnni_peak(kIterations); });
    });
    return static_cast<double>(operations_) * threads_.size() / seconds;
  }

 private:
  ThreadPool& threads_;
  AlignedBuffer memory_;
  bool vnni_ = false;
  std::atomic<uint64_t> sink_ = 0, operations_ = 0;
};

void measure(const Case& c, const Settings& settings, Machine& machine, ThreadPool& threads) {
  Bench bench(c, threads);
  const auto kernels = available_kernels();
  std::vector<std::vector<double>> seconds(kernels.size());
  std::vector<double> read, peak;
  std::vector<int> calls(kernels.size(), 1);
  for (size_t k = 0; k < kernels.size(); ++k) {
    const double once = seconds_of([&] { bench.multiply(*kernels[k]); });
    calls[k] = std::clamp(static_cast<int>(kSampleSeconds / once), 1, 1000);
  }
  for (int round = 0; round < settings.rounds; ++round) {
    read.push_back(machine.bytes_per_second());
    peak.push_back(machine.operations_per_second());
    for (size_t k = 0; k < kernels.size(); ++k)
      seconds[k].push_back(seconds_of([&] {
                             for (int i = 0; i < calls[k]; ++i) bench.multiply(*kernels[k]);
                           }) /
                           calls[k]);
  }
  const double reads = *std::max_element(read.begin(), read.end());
  const double peaks = *std::max_element(peak.begin(), peak.end());
  for (size_t k = 0; k < kernels.size(); ++k) {
    const double usual = median(seconds[k]);
    const double best = *std::min_element(seconds[k].begin(), seconds[k].end());
    const double bytes = static_cast<double>(bench.bytes()) / best;
    const double ops = bench.operations() / best;
    fmt::print("| {} | {} × {} | {} | {} | {:.0f} | {:.0f} | {:.1f} | {:.0f} % | {:.0f} | {} |\n",
               dtype_name(c.dtype), c.rows, c.cols, c.tokens, kernels[k]->name, usual * 1e6,
               best * 1e6, bytes / 1e9, 100 * bytes / reads, ops / 1e9,
               peaks > 0 ? fmt::format("{:.0f} %", 100 * ops / peaks) : "");
  }
  std::fflush(stdout);
}

void run(const Settings& settings) {
  ThreadPool threads(settings.threads);
  Machine machine(threads);
  fmt::print(
      "{} threads, {} rounds. Rates and shares are of the fastest round, against the fastest "
      "read of memory and 8-bit peak of the same rounds; now {:.1f} GB/s and {:.0f} GOP/s.\n\n",
      threads.size(), settings.rounds, machine.bytes_per_second() / 1e9,
      machine.operations_per_second() / 1e9);
  fmt::print(
      "| format | shape | tokens | kernels | median µs | best µs | GB/s | of memory | GOP/s "
      "| of peak |\n|---|---|---|---|---|---|---|---|---|---|\n");
  const auto wanted = [&](DType dtype) {
    return settings.only.empty() || dtype_name(dtype) == settings.only;
  };
  constexpr uint32_t kShapes[][2] = {{2880, 2880}, {5760, 2880}, {2048, 768}, {1536, 2048}};
  for (const DType dtype : {DType::mxfp4, DType::affine4, DType::affine8})
    for (const auto& [rows, cols] : kShapes)
      for (const uint32_t tokens : {1u, 16u, 128u})
        if (wanted(dtype)) measure({dtype, rows, cols, tokens}, settings, machine, threads);
  if (wanted(DType::affine8))
    for (const uint32_t tokens : {1u, 4u})
      measure({DType::affine8, 151936, 2048, tokens}, settings, machine, threads);
}

}  // namespace
}  // namespace wader

int main(int argc, char** argv) {
  wader::Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--threads" && std::atoi(value.c_str()) > 0) {
      settings.threads = std::atoi(value.c_str());
    } else if (flag == "--rounds" && std::atoi(value.c_str()) > 0) {
      settings.rounds = std::atoi(value.c_str());
    } else if (flag == "--format" && wader::dtype_from_name(value)) {
      settings.only = value;
    } else {
      fmt::print(stderr,
                 "usage: wader-bench-kernels [--threads N] [--rounds N] "
                 "[--format mxfp4|affine4|affine8]\n");
      return 2;
    }
  }
  wader::run(settings);
  return 0;
}
