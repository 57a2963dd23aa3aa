// Whether a checkpoint's experts can be used where they are: each section of an expert's record
// (arch/tensors.h) must be one run of bytes of one file, in the format that the container would
// have, and the next expert's a fixed step further on. GPT-OSS releases its MXFP4 experts so; where
// gate and up rows are apart, a record interleaves them and no run of bytes is one of its sections.
#pragma once

#include "base/result.h"
#include "container/in_place.h"
#include "install/plan.h"

namespace wader {

// `plan` is complete but for this. unsupported, with the reason and the way out, for a source that
// is no local directory or whose bytes do not stand as a record has them.
Result<InPlaceSource> find_in_place(const InstallPlan& plan);

}  // namespace wader
