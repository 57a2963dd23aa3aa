// Where the time of passes went, in seconds of the owner thread's clock, added up over passes. The
// phases do not overlap; what is in none of them (embedding, rotary tables, snapshots) is the
// difference to the passes' whole time.
#pragma once

namespace wader {

struct PassSeconds {
  double mixer = 0;      // norm, attention or DeltaNet, its residual
  double router = 0;     // norm, router product, choice
  double experts = 0;    // routed, shared and dense feed-forward, and the waits for their reads
  double lookahead = 0;  // predicting experts
  double head = 0;       // final norm, head, and what the caller does with the logits

  double total() const { return mixer + router + experts + lookahead + head; }
};

}  // namespace wader
