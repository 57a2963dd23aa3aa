// Building a range map while the model serves: the probes take turns with requests, one at a time,
// and only the routing of their own passes is counted, so that the map is the one that `wader
// range` makes.
#pragma once

#include <memory>

#include "server/service.h"

namespace wader {

// Tells the hub how far it is (event `range`), and clears service.builds_range at its end. The map
// is written beside the model. In the network's thread.
Task<> build_range(Service& service, std::shared_ptr<ServedModel> model);

}  // namespace wader
