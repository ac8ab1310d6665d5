// CHECK(condition): if the condition is false, prints it with file and line, and aborts. For
// conditions that only a bug in Weft can break; functions report errors of files, peers, users and
// devices as a Result.
#pragma once

namespace weft {

[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace weft

#define WEFT_CHECK(condition) \
    (static_cast<bool>(condition) ? void(0) : ::weft::CheckFailed(__FILE__, __LINE__, #condition))
