// Runs another program without a shell, with bounds on its time and its output.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft {

struct ChildOptions {
    int input = -1;                             // descriptor for standard input; -1: no input
    size_t max_output_bytes = size_t{4} << 20;  // of standard output
    bool c_locale = false;                      // LC_ALL=C in the child's environment
    // The child has this process's standard input and error, and stays in its process group, so
    // that Ctrl-C reaches the child too. Otherwise the child has a process group of its own.
    bool interactive = false;
    bool capture_output = true;  // false: the child writes to this process's standard output
    std::string name;            // for errors; "": words[0]
};

struct ChildResult {
    int status = -1;  // exit status, or 128 + signal
    std::string out;  // standard output, if captured
    std::string err;  // the first 64 KiB of standard error; empty if interactive
};

// Searches words[0] in PATH and, unless interactive, in the system's bin and sbin folders; runs it,
// and waits until it ends. At the deadline, or when it writes more than max_output_bytes, the child
// and its process group are killed. No deadline: the user can interrupt the child.
// Errors: kNotFound (no such program), kTimeout, kUnsupported (too much output), kIo.
// Thread: any.
Result<ChildResult> RunChild(std::vector<std::string> words,
                             const std::optional<Deadline>& deadline,
                             const ChildOptions& options = {});

}  // namespace weft
