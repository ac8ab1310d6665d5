// What ends up in files of a snapshot that was made by hand, beside what was to be saved: errors of
// the shell and of the tool, in the words of many languages, sudo's lecture and prompt, line ends
// of other systems.
#pragma once

#include <string>
#include <string_view>

namespace weft::doctor {

// The text as the program printed it: UTF-16 becomes ASCII; a lecture, a byte order mark, NUL bytes
// at the end and carriage returns are removed.
std::string TidiedOutput(std::string text);

enum class Said {
    kOutput,    // what the program had to say
    kNoSuch,    // that there is no such program or file
    kNotShown,  // why it says nothing: permission, no bus, no terminal
};
// What a text is that a file of a snapshot holds. Only few and short lines are taken for errors.
Said WhatIsSaid(std::string_view text);

}  // namespace weft::doctor
