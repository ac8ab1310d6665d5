// Quotes a word of a command line that a person or a script will run in a shell.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// For sh and compatible shells: adds single quotes if a character is special to a shell.
std::string ShellWord(std::string_view word);

}  // namespace weft
