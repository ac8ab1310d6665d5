// Where tests find the program and their files. In a library of its own (paths.cc), so that no
// other object depends on the folder that it was built in.
#pragma once

#include <string>

namespace weft::support {

// The folder tests/data with `below` behind it: "/a.json", "/../web/b.py".
std::string TestData(const std::string& below = "");
// The path of `weft`.
std::string WeftProgram();

}  // namespace weft::support
