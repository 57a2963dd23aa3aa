// RMS norm of the rows of a pass.
#pragma once

#include <cstdint>

#include "model/forward.h"

namespace wader {

// x (rows, hidden) → out (rows, hidden), over the compute threads.
void norm_rows(const ModelContext& model, float* out, const float* x, const float* weight,
               uint32_t rows);

}  // namespace wader
