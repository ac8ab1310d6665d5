// CHECK(condition): prints file, line and the condition, then aborts. Only for conditions that a
// bug in Weft can break; errors of files, peers, users and devices are a Result.
#pragma once

namespace weft {

[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace weft

#define WEFT_CHECK(condition) \
    (static_cast<bool>(condition) ? void(0) : ::weft::CheckFailed(__FILE__, __LINE__, #condition))
