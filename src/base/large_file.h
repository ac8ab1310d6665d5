// Advice about a file that is too large (EFBIG), for the end of an error's message.
#pragma once

#include <string>

namespace weft {

// Names the process's limit of file sizes, if there is one; else the file system is the cause.
std::string LargeFileAdvice();

}  // namespace weft
