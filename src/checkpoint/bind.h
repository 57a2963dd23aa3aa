// Binding: the canonical tensors of a spec found among the tensors of a source, by a family's
// tables.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "checkpoint/bound_checkpoint.h"
#include "checkpoint/families.h"
#include "checkpoint/release_style.h"
#include "checkpoint/tensor_table.h"

namespace wader {

// The stored tensor with this released name and shape, or why there is none.
using TakeTensor = std::function<Result<StoredTensor>(const std::string& name,
                                                      const std::vector<uint64_t>& shape)>;

// Every trunk tensor of `spec`, which `names` has. The first that `take` refuses ends it.
Result<std::unordered_map<std::string, TensorSource>> bind_trunk(const ArchitectureSpec& spec,
                                                                 const TensorNames& names,
                                                                 const ReleaseStyle& style,
                                                                 const TakeTensor& take);

// The experts of every moe layer into tensors.experts and tensors.expert_biases. Each layer is in
// one of the ways of family.experts.
Status bind_experts(const ArchitectureSpec& spec, const Family& family, TensorTable& table,
                    BoundTensors& tensors);

// Adds a part to all experts' sources: `stored` holds the first expert's rows (in `order`, of
// `rows` canonical ones), the next expert's are `step` further on.
void append_experts(const StoredTensor& stored, const PlaneSteps& step, RowOrder order,
                    const ArchitectureSpec& spec, uint64_t rows, uint64_t cols,
                    ExpertSources& experts);

}  // namespace wader
