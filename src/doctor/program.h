// Runs programs such as lspci, ip, dmesg and ssh (base/child_process.h) in the C locale, so that
// parsers see the same text on every host.
#pragma once

#include <string>
#include <vector>

#include "base/child_process.h"

namespace weft::doctor {

using Ran = ChildResult;

inline Result<Ran> RunProgram(const std::vector<std::string>& words, const Deadline& deadline,
                              size_t max_output_bytes = ChildOptions{}.max_output_bytes) {
    ChildOptions options;
    options.max_output_bytes = max_output_bytes;
    options.c_locale = true;
    return RunChild(words, deadline, options);
}

}  // namespace weft::doctor
