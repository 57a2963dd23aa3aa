#include "experts/counters.h"

namespace wader {

ExpertCounters ExpertCounters::since(const ExpertCounters& before) const {
  ExpertCounters d = *this;
  d.hits -= before.hits;
  d.misses -= before.misses;
  d.bytes_read -= before.bytes_read;
  d.wait_seconds -= before.wait_seconds;
  d.busy_seconds -= before.busy_seconds;
  d.waited_bytes -= before.waited_bytes;
  d.waited_seconds -= before.waited_seconds;
  for (size_t i = 0; i < d.bursts.size(); ++i) d.bursts[i] -= before.bursts[i];
  d.predicted -= before.predicted;
  d.predicted_right -= before.predicted_right;
  d.wasted_bytes -= before.wasted_bytes;
  d.hidden_seconds -= before.hidden_seconds;
  d.delay_seconds -= before.delay_seconds;
  return d;
}

}  // namespace wader
