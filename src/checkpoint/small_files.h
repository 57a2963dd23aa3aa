// The files beside the weights that a container keeps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/families.h"
#include "checkpoint/source_tree.h"

namespace wader {

// Those of tokenizer.json, tokenizer_config.json, generation_config.json, config.json,
// chat_template.jinja and LICENSE that are in `tree`. invalid_argument when one is a link that
// leads elsewhere: they are copied into containers.
Result<std::vector<SmallFile>> find_small_files(const SourceTree& tree);

// Where `files` has no generation_config.json: adds one that says by which tokens an answer ends,
// those of `own` (the config's) and those that are known of the family. config.json alone names one
// of them, and a model then talks on after the others. Ids that the vocabulary does not have are
// left out.
void add_generation_config(const Family& family, const ArchitectureSpec& spec,
                           std::span<const uint64_t> own, std::vector<SmallFile>& files);

}  // namespace wader
