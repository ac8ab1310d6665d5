// Names the kind of a file by its first bytes, for errors about a file that is no model.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Enough of a file for WrongKind.
inline constexpr size_t kKindBytes = 64;

// "it is a Git LFS pointer, ... Run 'git lfs pull' ...": what the bytes show, and the next step.
// Empty: nothing is known of files that begin so.
std::string WrongKind(std::string_view first_bytes);

}  // namespace weft
