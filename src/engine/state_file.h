// A session's state in a file: tokens, keys and values, recurrent states, and a note of the caller.
//   offset 0   "WADERST3"
//          8   u64 model identity · u64 hash of "ref" or "lanes" · u64 tokens · u64 note bytes
//              · u64 state bytes · u64 snapshot's position · u64 snapshot's bytes
//         64   tokens (i32 each) · note · state, piece by piece (SequenceState::for_each_piece)
//              · the snapshot of the last turn's beginning, where there is one (model/snapshots.h):
//              a template that drops an answer's reasoning goes back to it at once
//        end   u64 XXH3-64 of everything before it
// Little-endian, as it lies in memory. Files are untrusted: sizes are checked before anything is
// taken, the digest before the state is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "container/container.h"
#include "kernels/ops.h"
#include "model/snapshots.h"
#include "model/state.h"
#include "tokenizer/tokenizer.h"

namespace wader {

// What a state belongs to: other weights or other kernels would go on from it with other bits.
struct StateIdentity {
  uint64_t model, kernels;
};
StateIdentity state_identity(const Container& container, const Kernels& kernels);

Status save_state(const std::filesystem::path& path, const StateIdentity& identity,
                  const SequenceState& state, const Snapshots& snapshots,
                  std::span<const TokenId> tokens, std::string_view note);

struct LoadedState {
  std::vector<TokenId> tokens;
  std::string note;
};
// Fills `state` and `snapshots`, which are empty; after an error they hold nothing that may be
// used. A snapshot that does not fit (another context's rings, no room) is left out. A note of more
// than max_note_bytes is refused before any memory is taken for it.
Result<LoadedState> load_state(const std::filesystem::path& path, const StateIdentity& identity,
                               SequenceState& state, Snapshots& snapshots, uint64_t max_note_bytes);

}  // namespace wader
