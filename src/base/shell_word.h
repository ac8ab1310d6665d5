// Words of a command line that a person or a script takes over.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// For sh and its kin: in single quotes, unless nothing in it means anything to a shell.
std::string ShellWord(std::string_view word);

}  // namespace weft
