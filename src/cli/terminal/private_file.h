// Files of the user that nobody else may read: mode 0600, replaced whole.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::cli {

// Path of a file in the user's state folder, which is created (mode 0700): $XDG_STATE_HOME/weft, or
// ~/.local/state/weft. "": there is no such folder.
std::string StateFile(const std::string& name);

// The file at the end of the symbolic links of `path`, for rename(2), which would replace a link.
std::string ThroughLinks(const std::string& path);

// Creates an empty file with a new name, which may replace `path` by rename(2). Errors: kIo.
Result<std::string> CreatePrivateFile(const std::string& path);

}  // namespace weft::cli
