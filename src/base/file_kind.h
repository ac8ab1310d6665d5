// Identifies a file by its first bytes, for errors about a file that is not a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// Number of first bytes that WrongKind needs.
inline constexpr size_t kKindBytes = 64;

// Describes the file's kind and the next step: "it is a Git LFS pointer, ... Run 'git lfs pull'
// ...". Returns "" for an unknown kind.
std::string WrongKind(std::string_view first_bytes);

// As WrongKind, but recognizes only what a failed download leaves in place of a file of any format:
// a Git LFS pointer, a web page, zeros.
std::string PlaceholderKind(std::string_view first_bytes);

// ReadTextFile for a file that belongs to a model. Errors: as ReadTextFile; kCorrupt if the file is
// a placeholder.
Result<std::string> ReadModelText(const std::string& path, uint64_t most_bytes);

}  // namespace weft
