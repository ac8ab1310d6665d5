// A folder that only this user may write, for files that change what a process computes.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// Creates the folder, for its user only, if it is missing. flag: names the folder in errors.
// Errors: kIo; kDenied: other users may write it, it belongs to another user, or this process may
// not write it.
Status MakeOwnFolder(std::string_view flag, const std::string& folder);

}  // namespace weft
