// Removes files that Weft wrote from a folder, and leaves all others. Follows no link: of a link,
// it removes the link.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::train {

// Whether Weft writes files of this name into the folder.
using IsOwnName = std::function<bool(std::string_view name)>;

// Removes the regular files in `folder` with names that Weft uses, the one named `first` before all
// others ("": none), and then the folder if it is empty. A missing folder is not an error. Errors:
// kIo.
Status RemoveOwnFiles(const std::string& folder, const IsOwnName& is_own,
                      std::string_view first = "");

// Files in the folder of a step.
enum class StepContent {
    kEmpty,
    kOwn,      // files that a save wrote, perhaps beside others
    kForeign,  // other files only
};

// Folders of steps. Only a folder with a file of a rank, or with a manifest that names Weft, has
// files that Weft wrote: other programs write a manifest.json, too. A link, or a file in place of
// the folder, is kForeign.
StepContent ContentOfStep(const std::string& folder);
// Whether the folder, or the one behind a link, has a manifest that names Weft.
bool HasOwnManifest(const std::string& folder);
// Removes the manifest first: if the process ends here, the rest counts as unfinished.
Status RemoveStepFiles(const std::string& folder);
// Removes files of ranks except those in `kept`.
Status RemoveRankFiles(const std::string& folder, const IsOwnName& kept);

}  // namespace weft::train
