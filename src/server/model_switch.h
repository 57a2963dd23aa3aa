// Another model in the place of the one that is served, in the memory that the first one was
// given: answers in progress end, requests in between get a 503.
#pragma once

#include <filesystem>
#include <memory>

#include "server/service.h"

namespace wader {

// Opens the model as `service` serves models. From any thread; takes as long as the disk does.
Result<std::shared_ptr<ServedModel>> open_served_model(Service& service,
                                                       const std::filesystem::path& container);

// To be called in the network's thread, where no model is being loaded. What would not fit is
// refused before anything ends; where loading fails all the same, the former model is loaded again.
Task<HttpResponse> switch_model(Service& service, std::filesystem::path container);

}  // namespace wader
