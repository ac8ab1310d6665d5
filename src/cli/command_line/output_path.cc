#include "cli/command_line/output_path.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// The input that `path` is, or is a file of; empty: none.
std::string InputAt(const std::string& path, std::span<const std::string> inputs) {
    std::error_code ignored;
    for (const std::string& input : inputs) {
        if (fs::equivalent(input, path, ignored)) return input;
        std::error_code failed;  // (no folder)
        for (fs::directory_iterator at(input, failed), end; !failed && at != end;
             at.increment(failed)) {
            if (at->path().extension() == ".gguf") continue;
            if (fs::equivalent(at->path(), path, ignored)) return at->path();
        }
    }
    return "";
}

// Whether the existing file may be replaced.
bool IsOwn(const OutputPath& output) {
    if (output.mark.empty() && !output.is_own) return true;
    const auto file = File::Open(output.path);
    if (!file.ok()) return false;
    if (file->size_bytes() == 0) return true;
    if (output.is_own) return output.is_own(output.path);
    if (file->size_bytes() < output.mark.size()) return false;
    std::string text(output.mark.size(), '\0');
    const Status read = file->ReadAt(0, std::as_writable_bytes(std::span(text)));
    return read.ok() && text == output.mark;
}

}  // namespace

Status CheckOutput(const OutputPath& output, std::span<const std::string> inputs) {
    const auto& [name, path, mark, is_own, folder] = output;
    if (path.empty()) return {};
    if (const std::string input = InputAt(path, inputs); !input.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "{} {}: the result would replace its input {}. Name another file", name,
                         path, input);
    }
    std::error_code ignored;
    const fs::file_status status = fs::status(path, ignored);
    if (fs::is_directory(status)) {
        if (folder) return {};
        return MakeError(ErrorCode::kUsage, "{} {}: this is a folder. Name a file", name, path);
    }
    if (fs::exists(status) && !fs::is_regular_file(status)) return {};
    if (fs::exists(status) && !IsOwn(output)) {
        return MakeError(ErrorCode::kUsage,
                         "{} {}: the file exists and {} did not write it. Name another file, or "
                         "remove this one",
                         name, path, name);
    }
    const std::string parent = fs::path(path).parent_path().string();
    const std::string& writes = fs::exists(status) ? path : parent.empty() ? "." : parent;
    if (folder || ::access(writes.c_str(), W_OK) == 0) return {};
    return MakeError(ErrorCode::kIo, "{} {}: cannot write {}: {}", name, path, writes,
                     std::strerror(errno));
}

}  // namespace weft::cli
