// install_worker SOURCE DESTINATION TRUNK EXPERTS PACE_US: one install in a process of its own, for
// install_faults_test to kill, to race and to weigh. Formats are names or auto. It sleeps PACE_US
// microseconds at every progress step, so that a kill can hit any part of it. One JSON line on
// stdout, errors on stderr; exit 0 or 1.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/json.h"
#include "install/install.h"
#include "io/file.h"

namespace {

// The most this process ever had resident. Not getrusage: ru_maxrss survives exec.
uint64_t peak_rss_kib() {
  FILE* status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof line, status) != nullptr)
    if (std::sscanf(line, "VmHWM: %llu kB", &kib) == 1) break;
  std::fclose(status);
  return kib;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: install_worker SOURCE DESTINATION TRUNK EXPERTS PACE_US\n");
    return 2;
  }
  wader::InstallOptions options;
  options.source = argv[1];
  options.destination = argv[2];
  options.trunk = wader::dtype_from_name(argv[3]);
  options.experts = wader::dtype_from_name(argv[4]);
  const auto pace_us = static_cast<useconds_t>(std::strtoul(argv[5], nullptr, 10));

  const uint64_t before_kib = peak_rss_kib();
  int steps = 0;
  const auto report = wader::install(options, [&](const wader::Progress&) {
    ++steps;
    if (pace_us > 0) ::usleep(pace_us);
    return true;
  });
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.error().message.c_str());
    return 1;
  }
  const wader::Json facts = {{"steps", steps},
                             {"resumed", report->resumed},
                             {"source_bytes_read", report->source_bytes_read},
                             {"container_bytes", report->container_bytes},
                             {"peak_growth_kib", peak_rss_kib() - before_kib}};
  std::printf("%s\n", wader::json_text(facts).c_str());
  return 0;
}
