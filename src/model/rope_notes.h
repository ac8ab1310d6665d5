// Notes for the user about a file's RoPE keys: defaults that the file does not state, and keys
// that change nothing.
#pragma once

#include <string>
#include <vector>

#include "model/hyper.h"
#include "model_files/model_file.h"

namespace weft::model {

// hyper: that of `source`. Whole sentences that name the file and the key.
std::vector<std::string> RopeNotes(const model_files::ModelSource& source, const Hyper& hyper);

}  // namespace weft::model
