// Names the kind of a file by its first bytes, for errors about a file that is no model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// Enough of a file for WrongKind.
inline constexpr size_t kKindBytes = 64;

// "it is a Git LFS pointer, ... Run 'git lfs pull' ...": what the bytes show, and the next step.
// Empty: nothing is known of files that begin so.
std::string WrongKind(std::string_view first_bytes);

// WrongKind, but only of what a failed download leaves in the place of a file of any format: a Git
// LFS pointer, a web page, zeros.
std::string PlaceholderKind(std::string_view first_bytes);

// ReadTextFile of a file that belongs to a model. kCorrupt: the file holds a placeholder.
Result<std::string> ReadModelText(const std::string& path, uint64_t most_bytes);

}  // namespace weft
