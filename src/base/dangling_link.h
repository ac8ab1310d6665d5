// Links to missing files, as a folder of the Hub's cache has them if its blobs were not copied.
#pragma once

#include <string>

namespace weft {

// If `path` is a link to a missing file: "is a link to TARGET, which does not exist", with the next
// step; else "".
std::string DanglingLink(const std::string& path);

// Whether the folder of `path` lists it. A link to a missing file counts, so that a reader of an
// optional file opens it and fails (kIo) instead of taking the file as absent.
bool IsListed(const std::string& path);

}  // namespace weft
