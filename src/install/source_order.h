// In which order an install makes the container: that in which its source's bytes stand in their
// files. Then a disk reads forward, and a file of the hub passes by from its first byte to its
// last, so that it can be held against its SHA-256. What the container holds does not depend on it.
// Pure.
#pragma once

#include "install/plan.h"

namespace wader {

// Fills plan.steps and the orders in plan.container from the plan's sources.
Status order_by_source(InstallPlan& plan);

}  // namespace wader
