// Checks the file that a flag names as output, before the command's work starts.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::cli {

struct OutputPath {
    std::string name;  // in errors: "--npy"
    std::string path;  // empty: the flag was not given
    // The text with which files of this flag begin. An existing file is replaced only if it has it,
    // or is empty.
    std::string_view mark = {};
    // Instead of a mark: whether the flag wrote this file. Neither: the writer decides (--force).
    std::function<bool(const std::string& path)> is_own = {};
    bool folder = false;  // the output is a folder, or may be one
};

// inputs: files and folders that the command reads; the output must be none of them, nor a file of
// such a folder (other than a GGUF file), by whatever path. Pipes and devices are always allowed.
// Errors: kUsage: the output is an input, or is another kind of file; kIo: its folder is missing,
// or cannot be written.
Status CheckOutput(const OutputPath& output, std::span<const std::string> inputs);

}  // namespace weft::cli
