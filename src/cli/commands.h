// The commands, one file each. A command returns its exit status: 0, or 1 for a failure it has
// already reported as its result (damage found, tolerance exceeded). An error is printed by
// run_cli: invalid_argument means wrong usage and exits 2, every other code exits 1.
#pragma once

#include "base/result.h"
#include "cli/args.h"

namespace wader {

Result<int> run_install(const Args& args);
Result<int> run_list(const Args& args);
Result<int> run_rm(const Args& args);
Result<int> run_info(const Args& args);
Result<int> run_verify(const Args& args);
Result<int> run_chat(const Args& args);
Result<int> run_serve(const Args& args);
Result<int> run_stats(const Args& args);
Result<int> run_generate(const Args& args);
Result<int> run_logits(const Args& args);
Result<int> run_tokenize(const Args& args);
Result<int> run_render(const Args& args);
Result<int> run_check(const Args& args);
Result<int> run_bench_kernels(const Args& args);
Result<int> run_bench_decode(const Args& args);
Result<int> run_bench_prefill(const Args& args);
Result<int> run_trace(const Args& args);
Result<int> run_simulate(const Args& args);
Result<int> run_range(const Args& args);
Result<int> run_bench_io(const Args& args);

}  // namespace wader
