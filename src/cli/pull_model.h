// Pulling a model with a progress line on standard error: for `weft pull`, and for `--pull` of the
// commands that take a MODEL.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/pull.h"

namespace weft::cli {

// Errors: those of hub::Pull.
Result<hub::Pulled> PullShown(const hub::Config& config, const hub::RepoSpec& spec);
// A MODEL word of the Hub (hub/short_names.h) becomes hf:... where that is in the cache; it stays
// as it is where not, so that the error says what was written. pull: fetches it first in this case.
// kUsage: --pull for another kind of model.
Status FindModel(std::string& model, bool pull);

}  // namespace weft::cli
