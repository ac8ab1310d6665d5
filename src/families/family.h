// A family of models: what Weft knows of it, in one file of this folder (llama.cc, gemma.cc, ...).
//
// The file first reads a Hugging Face folder: functions from config.json to GGUF's keys, rules of
// tensors, and the rows `Family` (model_files/hf/family.h). Then it builds the layers: a function
// that reads like the paper about the models, and the rows `Architecture` (model/architecture.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "model/architecture.h"
#include "model/layers.h"
#include "model_files/hf/assembly.h"

namespace weft::families {

using namespace model;
using namespace model_files::hf;
using model_files::ModelSource;
using model_files::hf::Family;
using program::GateScore;
using program::RowGate;
using program::ValueId;

// The file kimi_linear.cc defines kimi_linear::kTables. The build lists all of them for AllTables()
// and AllFamilies(), which model_files and model only declare (cmake/families.cmake).
struct Tables {
    std::span<const Family> folders;
    std::span<const Architecture> architectures = {};
};

}  // namespace weft::families
