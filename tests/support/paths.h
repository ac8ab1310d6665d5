// Paths of the program and of test files. A separate library (paths.cc), so that other objects do
// not depend on the build folder.
#pragma once

#include <string>

namespace weft::support {

// The folder tests/data with `below` appended: "/a.json", "/../web/b.py".
std::string TestData(const std::string& below = "");
// The path of `weft`.
std::string WeftProgram();

}  // namespace weft::support
