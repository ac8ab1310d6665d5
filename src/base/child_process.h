// Runs another program without a shell, and limits its time and its output.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft {

struct ChildOptions {
    int input = -1;                             // descriptor for standard input; -1: no input
    size_t max_output_bytes = size_t{4} << 20;  // limit of the standard output
    bool c_locale = false;                      // LC_ALL=C in the child's environment
    // True: the child has this process's standard input and error, and stays in this process's
    // group, so that Ctrl-C reaches the child, too. False: the child has its own process group.
    bool interactive = false;
    bool capture_output = true;  // false: the child writes to this process's standard output
    std::string name{};          // for errors; "": words[0]
};

struct ChildResult {
    int status = -1;  // exit status, or 128 + signal
    std::string out;  // standard output, if captured
    std::string err;  // the first 64 KiB of standard error; empty if interactive
};

// Starts the program in `file` with the arguments `words`, and does not wait for it: the caller
// must. Its standard output and error are the descriptors out and err; -1: this process's own.
// Errors: kIo. Thread: any.
Result<pid_t> StartChild(const std::string& file, std::vector<std::string> words,
                         const ChildOptions& options, int out, int err);

// Searches words[0] in PATH and, unless interactive, in the system's bin and sbin folders; runs it,
// and waits until it ends. The child and its process group are killed at the deadline, or when the
// child writes more than max_output_bytes. Pass no deadline only if the user can interrupt the
// child.
// Errors: kNotFound (no such program), kTimeout, kUnsupported (too much output), kIo.
// Thread: any.
Result<ChildResult> RunChild(std::vector<std::string> words,
                             const std::optional<Deadline>& deadline,
                             const ChildOptions& options = {});

}  // namespace weft
