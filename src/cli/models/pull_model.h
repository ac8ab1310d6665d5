// Pulls a model with a progress line on standard error, for `weft pull` and for `--pull` of
// commands with a MODEL (cli/model_names.h).
#pragma once

#include <string>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/pull.h"

namespace weft::cli {

// Errors: as hub::Pull.
Result<hub::Pulled> PullShown(const hub::Config& config, const hub::RepoSpec& spec);

}  // namespace weft::cli
