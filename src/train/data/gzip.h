// Unpacks gzip files (RFC 1952) and checks the checksum and the length of each member, which
// libarchive does not.
#pragma once

#include <functional>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace weft::train {

// Passes the contents of all members to `write`, in pieces of at most 1 MiB. Memory: buffers of 2
// MiB. Errors: kCorrupt (cut short, damaged, or followed by other bytes than zeros), those of File
// and of `write`.
Status Gunzip(const File& file, const std::function<Status(std::string_view)>& write);

}  // namespace weft::train
