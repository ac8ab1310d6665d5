// Quotes words of command lines that are printed for a person or a script to run.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// For sh and compatible shells: adds single quotes if a character is special to a shell.
std::string ShellWord(std::string_view word);

}  // namespace weft
