// Quotes a word of a command line that a person or a script will run in a shell.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Adds single quotes, as sh and compatible shells need them, if a character is special to a shell.
std::string ShellWord(std::string_view word);

}  // namespace weft
