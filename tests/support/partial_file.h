// Files that 'weft pull --shard' downloaded in part.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "hub/part.h"

namespace weft::support {

// Makes a partial file of `path`, which has all bytes.
inline void MakePartial(const std::string& path) {
    const std::string part = path + ".blob" + hub::kPartSuffix;
    std::filesystem::rename(path, part);
    std::filesystem::create_symlink(part, path);
    hub::PartNote note;
    note.hash = std::string(64, 'a');
    note.size = std::filesystem::file_size(part);
    note.done.Add({0, note.size});
    std::ofstream(part + hub::kNoteSuffix) << hub::PrintNote(note);
}

}  // namespace weft::support
