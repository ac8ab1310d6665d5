// Cleans text in handmade snapshots. Recognizes error messages of shells and tools in many
// languages. Removes sudo's lecture and prompt, and carriage returns.
#pragma once

#include <string>
#include <string_view>

namespace weft::doctor {

// The text as the program printed it: converts UTF-16 to ASCII; removes a lecture, a byte order
// mark, trailing NUL bytes and carriage returns.
std::string TidiedOutput(std::string text);

enum class Said {
    kOutput,    // output of the program
    kNoSuch,    // error: no such program or file
    kNotShown,  // error: no permission, no bus, no terminal
};
// Classifies the text of a snapshot file. Only a few short lines can be an error.
Said ClassifyOutput(std::string_view text);

}  // namespace weft::doctor
