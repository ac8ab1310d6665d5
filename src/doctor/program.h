// Runs another program and takes what it prints: no shell, no input, and never longer than its
// deadline. For the tools that know what the kernel's files don't say (lspci, ip, dmesg, ssh).
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::doctor {

struct Ran {
    int status = -1;  // exit status, or 128 + signal
    std::string out;  // standard output, at most `most_bytes`
    std::string err;  // the beginning of standard error
};

// words[0] is looked for on PATH and in the folders of the administrator's programs (sbin). The
// program sees this process's environment with LC_ALL=C. At the deadline it is killed with its
// children. Errors: kNotFound (no such program), kTimeout, kUnsupported (prints too much), kIo.
Result<Ran> RunProgram(const std::vector<std::string>& words, const Deadline& deadline,
                       size_t most_bytes = size_t{4} << 20);

}  // namespace weft::doctor
