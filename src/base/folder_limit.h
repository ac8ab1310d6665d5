// The folders in which a process may open and create the files that another host names (weft worker
// --folders).
//
// A check resolves ".." and symbolic links, but the file is opened later: a local user who replaces
// a folder by a link in between can redirect it. Links inside a folder that a job reads (a model or
// training data) are followed wherever they lead.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft {

class FolderLimit {
  public:
    // No limit.
    FolderLimit() = default;
    // folders: existing folders; empty: no limit. Errors: kUsage (no such folder, or its path has
    // a comma).
    static Result<FolderLimit> Make(const std::vector<std::string>& folders);

    // Absolute, without links.
    const std::vector<std::string>& folders() const { return folders_; }
    // Whether the file or folder `path`, which need not exist, is one of the folders or in one.
    // "": no file, which is allowed. Errors: kDenied.
    Status Check(const std::string& path) const;

  private:
    std::vector<std::string> folders_;
};

}  // namespace weft
