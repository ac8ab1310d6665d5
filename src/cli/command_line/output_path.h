// Checks the file that a flag names as output, before the command's work starts.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::cli {

struct OutputPath {
    std::string name;  // in errors: "--npy"
    std::string path;  // empty: the flag was not given
    // The text that files of this kind have at a byte. An existing file is replaced only if it has
    // it, or is empty. Empty: the writer decides (--force).
    std::string_view mark = {};
    size_t mark_at = 0;
    bool folder = false;  // the output is a folder, or may be one
};

// inputs: files and folders that the command reads; the output must be none of them, nor a file of
// such a folder (other than a GGUF file), by whatever path. Pipes and devices are always allowed.
// Errors: kUsage: the output is an input, or is another kind of file; kIo: its folder is missing,
// or cannot be written.
Status CheckOutput(const OutputPath& output, std::span<const std::string> inputs);

}  // namespace weft::cli
