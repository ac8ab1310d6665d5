// CHECK: for what only a bug in Weft can do. Prints file, line and the condition, then aborts.
// What the world can do (files, peers, users, devices) is a Result, never a CHECK.
#pragma once

namespace weft {

[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace weft

#define WEFT_CHECK(condition) \
    (static_cast<bool>(condition) ? void(0) : ::weft::CheckFailed(__FILE__, __LINE__, #condition))
